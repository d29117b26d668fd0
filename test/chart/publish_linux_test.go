// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"encoding/pem"
	"maps"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/test/registry"
)

// TestPublishes: the script of the release workflow pushes an image of several processors and the chart to
// a registry, by skopeo and helm themselves, under the version and the images as latest too; and notes the digests that
// the registry has.
func TestPublishes(t *testing.T) {
	if _, err := exec.LookPath("skopeo"); err != nil {
		t.Skip("needs skopeo: apt-get install skopeo")
	}
	if out, err := helm(t, "version"); err != nil {
		t.Fatalf("helm: %v: %s", err, out)
	}
	r := &registry.Registry{User: "a", Password: "secret"}
	server := httptest.NewTLSServer(r)
	defer server.Close()
	at := strings.TrimPrefix(server.URL, "https://") + "/pointsman"
	dir := t.TempDir()
	index, archive := image(t, "amd64", "arm64")
	script, err := os.ReadFile("../../.github/publish")
	if err != nil {
		t.Fatal(err)
	}
	for file, text := range map[string][]byte{
		".github/publish": script, "bin/images/host.oci.tar": archive, "bin/dist/checksums.txt": nil,
		"ca.crt": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, file)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, file), text, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range map[string]string{"charts": "../../charts", "bin/helm": "../../bin/helm"} {
		to, err := filepath.Abs(to)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(dir, ".github/publish"), "images", "chart")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "REGISTRY=" + at, "GITHUB_REF_NAME=v1.2.3", "GITHUB_ACTOR=a", "TOKEN=secret",
		"SSL_CERT_FILE=" + filepath.Join(dir, "ca.crt"), "HOME=" + dir, "XDG_RUNTIME_DIR=" + dir, "TMPDIR=" + dir}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("publish: %v: %s", err, out)
	}

	tags := r.Tags()
	names := slices.Sorted(maps.Keys(tags))
	if want := []string{"pointsman/charts/pointsman:1.2.3", "pointsman/host:1.2.3", "pointsman/host:latest"}; !slices.Equal(names, want) {
		t.Fatalf("the registry has %q, want %q", names, want)
	}
	if tags["pointsman/host:1.2.3"] != index || tags["pointsman/host:latest"] != index {
		t.Errorf("the image is %s, and was pushed as %v", index, tags)
	}
	sums, err := os.ReadFile(filepath.Join(dir, "bin/pushed.sha256"))
	want := strings.TrimPrefix(index, "sha256:") + "  " + at + "/host\n" + strings.TrimPrefix(tags["pointsman/charts/pointsman:1.2.3"], "sha256:") + "  " + at + "/charts/pointsman\n"
	if err != nil || string(sums) != want {
		t.Errorf("what was pushed is noted as %q, %v; want %q", sums, err, want)
	}
	packed, err := os.ReadFile(filepath.Join(dir, "bin/dist/pointsman-1.2.3.tgz"))
	if err != nil || !bytes.Equal(r.Blob(registry.Digest(packed)), packed) {
		t.Errorf("the registry does not have the chart that was packed: %v", err)
	}
}

// image is an archive of an image for some processors, as make images writes it, and the image's digest.
func image(t *testing.T, architectures ...string) (digest string, archive []byte) {
	t.Helper()
	type object = map[string]any
	const kind = "application/vnd.oci.image."
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	write := func(name string, data []byte) {
		t.Helper()
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(data))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(data); err != nil {
			t.Fatal(err)
		}
	}
	add := func(kind string, data any) object {
		t.Helper()
		text, ok := data.([]byte)
		if !ok {
			var err error
			if text, err = json.Marshal(data); err != nil {
				t.Fatal(err)
			}
		}
		digest = registry.Digest(text)
		write("blobs/"+strings.Replace(digest, ":", "/", 1), text)
		return object{"mediaType": kind, "digest": digest, "size": len(text)}
	}
	var all []object
	for _, arch := range architectures {
		plain := append(make([]byte, 1024), arch...) // it is never unpacked
		var packed bytes.Buffer
		zip := gzip.NewWriter(&packed)
		_, _ = zip.Write(plain)
		_ = zip.Close() // neither fails in memory
		layer := add(kind+"layer.v1.tar+gzip", packed.Bytes())
		config := add(kind+"config.v1+json", object{"architecture": arch, "os": "linux", "rootfs": object{"type": "layers", "diff_ids": []string{registry.Digest(plain)}}})
		d := add(kind+"manifest.v1+json", object{"schemaVersion": 2, "mediaType": kind + "manifest.v1+json", "config": config, "layers": []object{layer}})
		d["platform"] = object{"architecture": arch, "os": "linux"}
		all = append(all, d)
	}
	top := add(kind+"index.v1+json", object{"schemaVersion": 2, "mediaType": kind + "index.v1+json", "manifests": all})
	text, err := json.Marshal(object{"schemaVersion": 2, "manifests": []object{top}})
	if err != nil {
		t.Fatal(err)
	}
	write("index.json", text)
	write("oci-layout", []byte(`{"imageLayoutVersion": "1.0.0"}`))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return digest, out.Bytes()
}
