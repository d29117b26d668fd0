// SPDX-License-Identifier: Apache-2.0

package test

import (
	"encoding/json"
	"maps"
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

// registry is what images' names begin with in manifests, and latest what those of a release end with, too.
const (
	registry = "ghcr.io/pointsman/"
	latest   = ":latest"
)

// An image is what one target of the Containerfile makes.
type image struct {
	copies     map[string]string // from a path in the image to its source
	unpacked   []string          // archives of Debian's packages
	user       string
	entrypoint string
	words      []string // after the entrypoint
	labels     string
}

// readImages are those that the Containerfile makes, by name.
func readImages(t *testing.T) map[string]*image {
	t.Helper()
	text := regexp.MustCompile(`(?m)^#.*\n`).ReplaceAllString(read(t, containerfile), "")
	images, i := make(map[string]*image), (*image)(nil)
	for line := range strings.Lines(strings.ReplaceAll(text, "\\\n", "")) {
		words := strings.Fields(line)
		_, list, _ := strings.Cut(line, " ")
		switch {
		case len(words) == 0:
		case words[0] == "FROM":
			i = &image{copies: make(map[string]string)}
			images[words[len(words)-1]] = i
		case words[0] == "ADD":
			i.unpacked = words[1 : len(words)-1]
		case words[0] == "COPY":
			for _, source := range words[1 : len(words)-1] {
				i.copies[path.Join(words[len(words)-1], path.Base(source))] = source
			}
		case words[0] == "RUN":
			t.Errorf("%s runs %s, which an image for another processor cannot", containerfile, list)
		case words[0] == "USER":
			i.user = words[1]
		case words[0] == "LABEL":
			i.labels = list
		case words[0] == "ENTRYPOINT":
			var all []string
			if err := json.Unmarshal([]byte(list), &all); err != nil || len(all) != 1 {
				t.Fatalf("ENTRYPOINT %s: %v", list, err)
			}
			i.entrypoint = all[0]
		case words[0] == "CMD":
			if err := json.Unmarshal([]byte(list), &i.words); err != nil {
				t.Fatalf("CMD %s: %v", list, err)
			}
		}
	}
	return images
}

// TestImages holds the Containerfile against what make build puts into bin/, and where
// the host looks for it: an image of the host, one of each dataplane, and one of all.
func TestImages(t *testing.T) {
	mains, err := filepath.Glob("../plugins/*/pointsman-dataplane-*/main.go")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]map[string]string{
		"host":      {"/usr/bin/pointsman": "pointsman"},
		"pointsman": {"/usr/bin/pointsman": "pointsman"},
	}
	for _, main := range mains {
		binary := filepath.Base(filepath.Dir(main))
		want["pointsman"]["/usr/libexec/pointsman/"+binary] = binary
		want[strings.TrimPrefix(binary, "pointsman-")] = map[string]string{"/usr/libexec/pointsman/" + binary: binary}
	}
	images := readImages(t)
	for name, i := range images {
		if !maps.Equal(i.copies, want[name]) {
			t.Errorf("image %s copies %v, want %v", name, i.copies, want[name])
		}
		if i.copies[i.entrypoint] == "" {
			t.Errorf("image %s begins with %s, which it does not have", name, i.entrypoint)
		}
		for _, label := range []string{"title", "description"} {
			if !strings.Contains(i.labels, "org.opencontainers.image."+label+"=") {
				t.Errorf("image %s has no %s", name, label)
			}
		}
	}
	if len(images) != len(want) {
		t.Errorf("there are %d images, want %d", len(images), len(want))
	}
	if i := images["host"]; i == nil || i.user != "65532:65532" || !slices.Equal(i.unpacked, []string{"base.tar"}) {
		t.Errorf("the host's image is %+v: it needs neither privileges nor programs", i)
	}
	if !strings.Contains(read(t, "../configs/defaults.yaml"), "\npluginDirs: [/usr/libexec/pointsman]\n") {
		t.Error("the host looks for plugins elsewhere")
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
	images := readImages(t)
	tag := ":" + regexp.MustCompile(`(?m)^appVersion: "([0-9.]+)"`).FindStringSubmatch(read(t, chart+"Chart.yaml"))[1]
	files, err := filepath.Glob("../configs/kubernetes*/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, file := range files {
		for _, c := range containers(t, file) {
			seen++
			name := strings.TrimSuffix(strings.TrimPrefix(c.Image, registry), tag)
			i := images[name]
			switch {
			case c.Image == "": // a patch
				continue
			case i == nil || c.Image != registry+name+tag:
				t.Errorf("%s: %s runs the image %s, which make images does not make", file, c.Name, c.Image)
				continue
			case len(c.Command) > 0 && i.copies[c.Command[0]] == "":
				t.Errorf("%s: %s runs %s, which the image %s does not have", file, c.Name, c.Command[0], name)
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
	if seen < 5 {
		t.Errorf("found only %d containers", seen)
	}
}

// A container is one of a DaemonSet's, or of a Job's.
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
