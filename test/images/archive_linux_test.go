// SPDX-License-Identifier: Apache-2.0

package images

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// prefix and tag are the beginning and the end of images' names in manifests.
const (
	prefix = "ghcr.io/pointsman/"
	tag    = ":0.1.0"
)

// names are the names of all images.
var names = []string{"host", "pointsman", "dataplane-iptables", "dataplane-ipvs", "dataplane-nftables", "dataplane-userspace"}

// folder returns the folder in which make images put them.
func folder(t testing.TB) string {
	t.Helper()
	dir := os.Getenv("POINTSMAN_IMAGES")
	if dir == "" {
		t.Skip("needs what make images makes, in the folder POINTSMAN_IMAGES; try: make test-images")
	}
	return dir
}

// An archive is the file of an image for several processors, by digest.
type archive struct {
	blobs map[string][]byte
	index []byte
}

// open reads the archive of an image, and checks the digest of each blob.
func open(t testing.TB, path string) archive {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	a := archive{blobs: make(map[string][]byte)}
	for r := tar.NewReader(file); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return a
		}
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		switch dir, name := filepath.Split(header.Name); {
		case header.Name == "index.json":
			a.index = data
		case dir == "blobs/sha256/" && name != "":
			if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != name {
				t.Fatalf("%s: the digest of %s differs from its name", path, header.Name)
			}
			a.blobs["sha256:"+name] = data
		}
	}
}

// A descriptor is a reference to a blob of an archive.
type descriptor struct {
	MediaType, Digest string
	Annotations       map[string]string
	Platform          struct{ OS, Architecture string }
}

// A built image is an image for one processor.
type built struct {
	Architecture, OS, Created string
	Config                    struct {
		Labels map[string]string
	}
	layers [][]byte // gzipped, lowest first
}

// images returns the name of the archive's image, and its images by processor.
func (a archive) images(t testing.TB) (name string, all map[string]built) {
	t.Helper()
	var top, index struct{ Manifests []descriptor }
	a.decode(t, a.index, &top)
	if len(top.Manifests) != 1 {
		t.Fatalf("the archive has %d images, want 1: %s", len(top.Manifests), a.index)
	}
	a.decode(t, a.blobs[top.Manifests[0].Digest], &index)
	all = make(map[string]built)
	for _, d := range index.Manifests {
		var manifest struct {
			Config descriptor
			Layers []descriptor
		}
		a.decode(t, a.blobs[d.Digest], &manifest)
		var b built
		a.decode(t, a.blobs[manifest.Config.Digest], &b)
		if b.Architecture != d.Platform.Architecture || b.OS != "linux" {
			t.Errorf("the index names the platform %+v, the image's config %s/%s", d.Platform, b.OS, b.Architecture)
		}
		for _, l := range manifest.Layers {
			b.layers = append(b.layers, a.blobs[l.Digest])
		}
		all[d.Platform.Architecture] = b
	}
	for _, key := range []string{"org.opencontainers.image.ref.name", "io.containerd.image.name"} {
		if name == "" {
			name = top.Manifests[0].Annotations[key]
		} else if name != top.Manifests[0].Annotations[key] {
			t.Errorf("the image has two names: %v", top.Manifests[0].Annotations)
		}
	}
	return name, all
}

func (a archive) decode(t testing.TB, data []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatalf("%v: %q", err, data)
	}
}
