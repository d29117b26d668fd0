// SPDX-License-Identifier: Apache-2.0

package test

import (
	"encoding/json"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

const containerfile = "../configs/container/Containerfile"

// An image is what the Containerfile makes.
type image struct {
	name       string
	copies     map[string]string // from a path in the image to its source
	packages   []string
	entrypoint string
	words      []string // after the entrypoint
}

func readImage(t *testing.T) image {
	t.Helper()
	text := read(t, containerfile)
	i := image{copies: make(map[string]string)}
	if m := regexp.MustCompile(`(?m)^#\s+podman build -t (\S+) -f configs/container/Containerfile bin$`).FindStringSubmatch(text); m != nil {
		i.name = m[1]
	}
	text = strings.ReplaceAll(regexp.MustCompile(`(?m)^#.*\n`).ReplaceAllString(text, ""), "\\\n", "")
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		_, list, _ := strings.Cut(line, " ")
		switch words[0] {
		case "COPY":
			for _, source := range words[1 : len(words)-1] {
				i.copies[path.Join(words[len(words)-1], path.Base(source))] = source
			}
		case "RUN":
			_, after, _ := strings.Cut(line, "--no-install-recommends ")
			packages, _, _ := strings.Cut(after, "&&")
			i.packages = strings.Fields(packages)
		case "ENTRYPOINT":
			var all []string
			if err := json.Unmarshal([]byte(list), &all); err != nil || len(all) != 1 {
				t.Fatalf("ENTRYPOINT %s: %v", list, err)
			}
			i.entrypoint = all[0]
		case "CMD":
			if err := json.Unmarshal([]byte(list), &i.words); err != nil {
				t.Fatalf("CMD %s: %v", list, err)
			}
		}
	}
	return i
}

// TestImage holds the Containerfile against what make build puts into bin/, and where
// the host looks for it.
func TestImage(t *testing.T) {
	i := readImage(t)
	mains, err := filepath.Glob("../plugins/*/pointsman-dataplane-*/main.go")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"/usr/bin/pointsman": "pointsman"}
	for _, main := range mains {
		binary := filepath.Base(filepath.Dir(main))
		want["/usr/libexec/pointsman/"+binary] = binary
	}
	for to, source := range want {
		if i.copies[to] != source {
			t.Errorf("%s does not copy %s to %s", containerfile, source, to)
		}
	}
	for to, source := range i.copies {
		if want[to] == "" {
			t.Errorf("%s copies %s, which make build does not make", containerfile, source)
		}
	}
	if !strings.Contains(read(t, "../configs/defaults.yaml"), "\npluginDirs: [/usr/libexec/pointsman]\n") {
		t.Error("the host looks for plugins elsewhere")
	}
	if i.copies[i.entrypoint] == "" {
		t.Errorf("the image begins with %s, which it does not have", i.entrypoint)
	}
}

// TestImagePrograms sees to it that the image has what plugins call.
func TestImagePrograms(t *testing.T) {
	if _, err := exec.LookPath("dpkg-query"); err != nil {
		t.Skip("needs dpkg-query: it knows which package has a program")
	}
	i := readImage(t)
	for _, program := range []string{"iptables-nft-restore", "iptables-legacy-restore", "ip6tables-nft-save", "ip6tables-legacy-save", "ipset", "modprobe"} {
		file, err := exec.LookPath(program)
		if err != nil {
			t.Logf("%s is not installed here, so it is not known whose it is", program)
			continue
		}
		out, err := exec.CommandContext(t.Context(), "dpkg-query", "-S", file, strings.TrimPrefix(file, "/usr")).Output()
		owner, _, ok := strings.Cut(string(out), ":")
		if !ok {
			t.Errorf("dpkg-query -S %s: %v", file, err)
		} else if !slices.Contains(i.packages, owner) {
			t.Errorf("the image has %q, and %s is in %s", i.packages, program, owner)
		}
	}
}

// TestImageWithoutCgo sees to it that the binaries can be built for an image with
// another C library: that nothing of them is written in C but what Go has in Go too.
func TestImageWithoutCgo(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{if and .CgoFiles (not .Standard)}}{{.ImportPath}}{{end}}", "./host/pointsman", "./plugins/...")
	cmd.Dir = ".."
	out, err := cmd.Output()
	if err != nil || len(strings.TrimSpace(string(out))) > 0 {
		t.Errorf("these need cgo: %s %v", out, err)
	}
}

// TestImageInManifests holds what the manifests run against what the image has.
func TestImageInManifests(t *testing.T) {
	i := readImage(t)
	files, err := filepath.Glob("../configs/kubernetes*/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, file := range files {
		for _, c := range containers(t, file) {
			seen++
			switch {
			case c.Image != "" && c.Image != i.name:
				t.Errorf("%s: %s runs the image %s, and not %s", file, c.Name, c.Image, i.name)
			case len(c.Command) > 0 && i.copies[c.Command[0]] == "":
				t.Errorf("%s: %s runs %s, which the image does not have", file, c.Name, c.Command[0])
			case len(c.Command) == 0 && len(c.Args) > 0 && c.Args[0] != i.words[0]:
				t.Errorf("%s: %s begins with %q, and the image with %q", file, c.Name, c.Args, i.words)
			}
			for _, word := range c.Args {
				if config, ok := strings.CutPrefix(word, "--config="); ok && !c.sees(config) {
					t.Errorf("%s: nothing is mounted where %s finds %s", file, c.Name, config)
				}
			}
		}
	}
	if seen < 4 {
		t.Errorf("found only %d containers", seen)
	}
}

// A container is one of a DaemonSet's.
type container struct {
	Name, Image   string
	Command, Args []string
	VolumeMounts  []struct {
		MountPath string `yaml:"mountPath"`
	} `yaml:"volumeMounts"`
}

func (c container) sees(file string) bool {
	for _, m := range c.VolumeMounts {
		if m.MountPath == path.Dir(file) {
			return true
		}
	}
	return false
}

func containers(t *testing.T, file string) []container {
	t.Helper()
	var object struct {
		Kind string
		Spec struct {
			Template struct {
				Spec struct{ Containers []container }
			}
		}
	}
	// A file of several objects begins with another kind.
	if err := yaml.Unmarshal([]byte(read(t, file)), &object); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return object.Spec.Template.Spec.Containers
}
