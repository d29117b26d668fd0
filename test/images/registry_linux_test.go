// SPDX-License-Identifier: Apache-2.0

package images

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	programs "github.com/pointsman/pointsman/test/built"
	"github.com/pointsman/pointsman/test/registry"
)

// What images are of, and where a node finds them.
const (
	indexType    = "application/vnd.oci.image.index.v1+json"
	manifestType = "application/vnd.oci.image.manifest.v1+json"
	repository   = "pointsman/"
)

// A mirror is a registry for a node to pull from.
type mirror struct {
	testing.TB
	registry.Registry
	url string
}

// newMirror has images as make images made them, with the tag of the manifests, and each once more as next: another
// image that has the same files. It also has the image of a pod's pause container.
func newMirror(t testing.TB, names ...string) *mirror {
	t.Helper()
	m := &mirror{TB: t}
	for _, name := range names {
		a := open(t, filepath.Join(folder(t), name+".oci.tar"))
		for _, data := range a.blobs {
			m.Add(data)
		}
		var top, index struct{ Manifests []descriptor }
		a.decode(t, a.index, &top)
		all := top.Manifests[0].Digest
		a.decode(t, a.blobs[all], &index)
		m.Tag(repository+name+tag, indexType, a.blobs[all])
		for _, d := range index.Manifests {
			m.Tag("", manifestType, a.blobs[d.Digest])
			if d.Platform.Architecture == runtime.GOARCH {
				m.next(name, a.blobs[d.Digest])
			}
		}
	}
	m.pause()
	listener, err := net.Listen("tcp", nodeAddr.String()+":0") // where each node finds it
	if err != nil {
		t.Fatal(err)
	}
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: m}}
	server.Start()
	t.Cleanup(server.Close)
	m.url = server.URL
	return m
}

// next adds an image that differs in its label alone.
func (m *mirror) next(name string, text []byte) {
	m.Helper()
	manifest, config := m.object(text), m.object(m.Blob(m.object(text)["config"].(object)["digest"].(string)))
	config["config"].(object)["Labels"].(object)["org.opencontainers.image.version"] = "next"
	manifest["config"] = m.add("application/vnd.oci.image.config.v1+json", config)
	m.tag(name+":next", manifest)
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
	_ = files.Close() // nothing of this fails in memory
	m.image(repository+"pause:latest", layer.Bytes(), "/pause")
}

// image adds an image of one layer, a tar archive, and returns its digest.
func (m *mirror) image(name string, layer []byte, entrypoint ...string) string {
	m.Helper()
	config := object{
		"architecture": runtime.GOARCH, "os": "linux", "config": object{"Entrypoint": entrypoint},
		"rootfs": object{"type": "layers", "diff_ids": []string{registry.Digest(layer)}},
	}
	manifest := m.text(object{
		"schemaVersion": 2, "mediaType": manifestType,
		"config": m.add("application/vnd.oci.image.config.v1+json", config),
		"layers": []object{m.blob("application/vnd.oci.image.layer.v1.tar", layer)},
	})
	m.Tag(name, manifestType, manifest)
	return registry.Digest(manifest)
}

func (m *mirror) object(text []byte) (o object) {
	m.Helper()
	if err := json.Unmarshal(text, &o); err != nil {
		m.Fatal(err)
	}
	return o
}

func (m *mirror) tag(name string, manifest object) {
	m.Helper()
	m.Tag(repository+name, manifestType, m.text(manifest))
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
	return object{"mediaType": kind, "digest": m.Add(data), "size": len(data)}
}
