// SPDX-License-Identifier: Apache-2.0

package images

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	programs "github.com/pointsman/pointsman/test/built"
)

// The processor of images, and the registry from which a node pulls them.
const (
	indexType    = "application/vnd.oci.image.index.v1+json"
	manifestType = "application/vnd.oci.image.manifest.v1+json"
	repository   = "pointsman/"
)

type object = map[string]any

// A mirror is a registry from which nodes pull.
type mirror struct {
	testing.TB
	url string

	mu    sync.Mutex        // guards what follows
	blobs map[string][]byte // by digest
	types map[string]string // of manifests, by digest
	tags  map[string]string // NAME:TAG to a digest
}

// ServeHTTP answers a pull of the OCI distribution API.
func (m *mirror) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	path := strings.TrimPrefix(r.URL.Path, "/v2/")
	_, digest, blob := strings.Cut(path, "/blobs/")
	kind := "application/octet-stream"
	if name, reference, manifest := strings.Cut(path, "/manifests/"); manifest {
		if digest = reference; !strings.Contains(reference, ":") {
			digest = m.tags[name+":"+reference]
		}
		kind = m.types[digest]
	} else if path == "" {
		return
	} else if !blob {
		digest = ""
	}
	data, has := m.blobs[digest]
	if !has || kind == "" {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Docker-Content-Digest", digest)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
}

// store adds a blob, and returns its digest.
func (m *mirror) store(data []byte) string {
	sum := sha256.Sum256(data)
	digest := "sha256:" + hex.EncodeToString(sum[:])
	m.mu.Lock()
	defer m.mu.Unlock()
	m.blobs[digest] = data
	return digest
}

// manifest adds a manifest of a media type under NAME:TAG or, without a name, only under its digest.
func (m *mirror) manifest(name, kind string, data []byte) (digest string) {
	digest = m.store(data)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.types[digest] = kind
	if name != "" {
		m.tags[name] = digest
	}
	return digest
}

// newMirror returns a registry with the images of make images, with the tag of the manifests, and each a second time as
// next: another image with the same files. It also has the image of a pod's pause container.
func newMirror(t testing.TB, names ...string) *mirror {
	t.Helper()
	m := &mirror{TB: t, blobs: make(map[string][]byte), types: make(map[string]string), tags: make(map[string]string)}
	for _, name := range names {
		a := open(t, filepath.Join(folder(t), name+".oci.tar"))
		for _, data := range a.blobs {
			m.store(data)
		}
		var top, index struct{ Manifests []descriptor }
		a.decode(t, a.index, &top)
		all := top.Manifests[0].Digest
		a.decode(t, a.blobs[all], &index)
		m.manifest(repository+name+tag, indexType, a.blobs[all])
		for _, d := range index.Manifests {
			m.manifest("", manifestType, a.blobs[d.Digest])
			if d.Platform.Architecture == runtime.GOARCH {
				m.next(name, a.blobs[d.Digest])
			}
		}
	}
	m.pause()
	listener, err := net.Listen("tcp", nodeAddr.String()+":0") // as every node finds it
	if err != nil {
		t.Fatal(err)
	}
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: m}}
	server.Start()
	t.Cleanup(server.Close)
	m.url = server.URL
	return m
}

// next adds an image that differs only in its label.
func (m *mirror) next(name string, text []byte) {
	m.Helper()
	manifest, config := m.object(text), m.object(m.blobs[m.object(text)["config"].(object)["digest"].(string)])
	config["config"].(object)["Labels"].(object)["org.opencontainers.image.version"] = "next"
	manifest["config"] = m.add("application/vnd.oci.image.config.v1+json", config)
	m.manifest(repository+name+":next", manifestType, m.text(manifest))
}

// pause adds the image of the container that holds a pod's namespaces.
func (m *mirror) pause() {
	m.Helper()
	dir := m.TempDir()
	if err := programs.Into(dir, "", "./test/images/pause"); err != nil {
		m.Fatal(err)
	}
	program, err := os.ReadFile(filepath.Join(dir, "pause"))
	if err != nil {
		m.Fatal(err)
	}
	var layer bytes.Buffer
	files := tar.NewWriter(&layer)
	_ = files.WriteHeader(&tar.Header{Name: "pause", Mode: 0o755, Size: int64(len(program))})
	_, _ = files.Write(program)
	_ = files.Close() // none of this fails in memory
	m.image(repository+"pause:latest", layer.Bytes(), "/pause")
}

// image adds an image of one layer, a tar archive, and returns its digest.
func (m *mirror) image(name string, layer []byte, entrypoint ...string) string {
	m.Helper()
	config := object{
		"architecture": runtime.GOARCH, "os": "linux", "config": object{"Entrypoint": entrypoint},
		"rootfs": object{"type": "layers", "diff_ids": []string{m.store(layer)}},
	}
	manifest := m.text(object{
		"schemaVersion": 2, "mediaType": manifestType,
		"config": m.add("application/vnd.oci.image.config.v1+json", config),
		"layers": []object{m.blob("application/vnd.oci.image.layer.v1.tar", layer)},
	})
	return m.manifest(name, manifestType, manifest)
}

func (m *mirror) object(text []byte) (o object) {
	m.Helper()
	if err := json.Unmarshal(text, &o); err != nil {
		m.Fatal(err)
	}
	return o
}

func (m *mirror) add(kind string, o object) object {
	m.Helper()
	return m.blob(kind, m.text(o))
}

func (m *mirror) text(o object) []byte {
	m.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		m.Fatal(err)
	}
	return text
}

func (m *mirror) blob(kind string, data []byte) object {
	return object{"mediaType": kind, "digest": m.store(data), "size": len(data)}
}
