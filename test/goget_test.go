// SPDX-License-Identifier: Apache-2.0

package test

import (
	"archive/zip"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// proxied is a folder that the go command takes modules from, with this checkout in it as version
// v0.0.1, as a release would be.
func proxied(t *testing.T) string {
	t.Helper()
	const version = "v0.0.1"
	dir := t.TempDir()
	at := filepath.Join(dir, strings.TrimSuffix(module, "/"), "@v")
	if err := os.MkdirAll(at, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"list":            version + "\n",
		version + ".info": `{"Version": "` + version + `", "Time": "2026-01-01T00:00:00Z"}`,
		version + ".mod":  read(t, "../go.mod"),
	} {
		if err := os.WriteFile(filepath.Join(at, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	file, err := os.Create(filepath.Join(at, version+".zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	archive := zip.NewWriter(file)
	for _, path := range append(packageFiles(t), "go.mod", "go.sum", "LICENSE") {
		w, err := archive.Create(module[:len(module)-1] + "@" + version + "/" + path)
		if err == nil {
			_, err = w.Write([]byte(read(t, filepath.Join("..", path))))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

// packageFiles are the files of the module's packages, below its folder.
func packageFiles(t *testing.T) (paths []string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-json=Dir,GoFiles,IgnoredGoFiles,EmbedFiles", "../sdk/...", "../internal/...").Output()
	if err != nil {
		t.Fatal(err)
	}
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	for d := json.NewDecoder(strings.NewReader(string(out))); d.More(); {
		var p struct {
			Dir                                 string
			GoFiles, IgnoredGoFiles, EmbedFiles []string
		}
		if err := d.Decode(&p); err != nil {
			t.Fatal(err)
		}
		below, err := filepath.Rel(root, p.Dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, files := range [][]string{p.GoFiles, p.IgnoredGoFiles, p.EmbedFiles} {
			for _, f := range files {
				paths = append(paths, filepath.ToSlash(filepath.Join(below, f)))
			}
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths) // what is embedded may be of a package, too
}

// goByProxy is the environment in which the go command takes this module from a folder that proxied has
// made, and others from where this checkout was built from, without compiling them again.
func goByProxy(t *testing.T, proxy string) []string {
	t.Helper()
	shared, err := exec.CommandContext(t.Context(), "go", "env", "GOMODCACHE", "GOPROXY", "GOCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	known := strings.Fields(string(shared))
	return []string{"GOFLAGS=-modcacherw -buildvcs=false -trimpath", "GOWORK=off", "GOSUMDB=off", "GONOPROXY=none", "GOPRIVATE=", "GOCACHE=" + known[2],
		"GOMODCACHE=" + filepath.Join(proxy, "cache"), "GOPROXY=file://" + proxy + ",file://" + known[0] + "/cache/download," + known[1]}
}

// TestGoGet follows the author's guide in a module of one's own: the command that it prints brings all
// that its plugin needs, and that builds and runs.
func TestGoGet(t *testing.T) {
	t.Parallel()
	guide := read(t, "../docs/writing-a-plugin.md")
	command := regexp.MustCompile("`(go get github.com/pointsman/pointsman/[a-z/]+)`").FindStringSubmatch(guide)
	if command == nil {
		t.Fatal("the guide prints no go get")
	}
	proxy := proxied(t)
	dir := filepath.Join(t.TempDir(), "pointsman-dataplane-printer")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	code := regexp.MustCompile("(?s)```go\n(.*?)```").FindStringSubmatch(guide)[1]
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(code), 0o644); err != nil {
		t.Fatal(err)
	}
	environment := append(os.Environ(), goByProxy(t, proxy)...)
	run := func(words ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), words[0], words[1:]...)
		cmd.Dir = dir
		cmd.Env = environment
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v\n%s", words, err, out)
		}
		return string(out)
	}
	run("go", "mod", "init", "example.org/printer")
	run(strings.Fields(command[1])...)
	run("go", "build", "-o", "pointsman-dataplane-printer", ".")
	if out := run("./pointsman-dataplane-printer", "describe"); !strings.Contains(out, "printer") || !strings.Contains(out, "dies-with-process") {
		t.Errorf("the plugin says %s", out)
	}
}

// TestDataplanesAreListed: the index of dataplanes has every one that is here.
func TestDataplanesAreListed(t *testing.T) {
	index := read(t, "../plugins/README.md")
	found, err := filepath.Glob("../plugins/*/pointsman-dataplane-*")
	if err != nil || len(found) < 4 {
		t.Fatalf("%q, %v", found, err)
	}
	for _, folder := range found {
		if name := filepath.Base(filepath.Dir(folder)); !strings.Contains(index, "| ["+name+"](") {
			t.Errorf("plugins/README.md does not list %s", name)
		}
	}
}
