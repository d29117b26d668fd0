// SPDX-License-Identifier: Apache-2.0

package scaffold

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func plugin(language string) Plugin {
	return Plugin{Name: "acme", Language: language, Module: "example.org/acme", Pointsman: "pointsman", Conformance: "pointsman-conformance", PluginDirs: []string{"/usr/libexec/pointsman"}, Ports: [NumPorts]int{1, 2, 3, 4}}
}

// TestFiles: the files have the name of the plugin instead of the example's, and each language has its build files.
func TestFiles(t *testing.T) {
	for language, needs := range map[string][]string{
		Go:     {"go.mod", "main.go", "relay.go", "conform_test.go"},
		Python: {"pointsman-dataplane-acme", "proto/dataplane.proto", "proto/hello.proto", "proto/status.proto"},
	} {
		all, err := Files(plugin(language))
		if err != nil {
			t.Fatal(err)
		}
		var paths []string
		for _, f := range all {
			paths = append(paths, f.Path)
			if bytes.Contains(f.Text, []byte("{{.")) || bytes.Contains(f.Text, []byte(`relay"`)) && f.Path != "proto/status.proto" {
				t.Errorf("%s of %s has text that should be replaced:\n%s", f.Path, language, f.Text)
			}
			if f.Executable != strings.HasPrefix(f.Path, "pointsman-") {
				t.Errorf("%s of %s is executable: %t", f.Path, language, f.Executable)
			}
		}
		for _, path := range append(needs, "Makefile", "README.md", "host.yaml", "services/web.yaml", ".gitignore", ".github/workflows/ci.yaml") {
			if !slices.Contains(paths, path) {
				t.Errorf("a plugin in %s has no %s: %q", language, path, paths)
			}
		}
	}
}

// TestVersion: go.mod requires the version of the release, if there is one.
func TestVersion(t *testing.T) {
	for version, want := range map[string]string{
		"":       "module example.org/acme\n\ngo " + goVersion + "\n",
		"v0.3.0": "module example.org/acme\n\ngo " + goVersion + "\n\nrequire github.com/pointsman/pointsman v0.3.0\n",
	} {
		p := plugin(Go)
		p.Version = version
		all, err := Files(p)
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(all, func(f File) bool { return f.Path == "go.mod" })
		if got := string(all[i].Text); got != want {
			t.Errorf("with version %q go.mod is %q", version, got)
		}
	}
	mod, err := os.ReadFile("../../go.mod")
	if err != nil || !bytes.Contains(mod, []byte("\ngo "+goVersion+"\n")) {
		t.Errorf("goVersion is %s, and go.mod has another one (%v)", goVersion, err)
	}
}

// TestWrite does not write to a folder that is not empty.
func TestWrite(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "plugin")
	all := []File{{Path: "a/b", Text: []byte("text")}, {Path: "run", Executable: true}}
	if err := Write(dir, all); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "a", "b")); string(text) != "text" || err != nil {
		t.Errorf("a/b has %q, %v", text, err)
	}
	if err := Write(dir, all); err == nil || !strings.Contains(err.Error(), "not empty") {
		t.Errorf("a second time: %v", err)
	}
}

func TestFreePorts(t *testing.T) {
	ports, err := FreePorts()
	if err != nil {
		t.Fatal(err)
	}
	for i, port := range ports {
		if port == 0 || slices.Contains(ports[:i], port) {
			t.Errorf("the ports are %v", ports)
		}
	}
}
