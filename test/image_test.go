// SPDX-License-Identifier: Apache-2.0

package test

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// registry is the prefix of image names in manifests; latest is the other tag of a release.
const (
	registry = "ghcr.io/pointsman/"
	latest   = ":latest"
)

// imageNames returns the names of the images that the Containerfile describes.
func imageNames(t *testing.T) (names []string) {
	t.Helper()
	for _, m := range regexp.MustCompile(`(?m)^FROM scratch AS (\S+)$`).FindAllStringSubmatch(read(t, "../configs/container/Containerfile"), -1) {
		names = append(names, m[1])
	}
	return names
}

// TestImages: the Containerfile builds an image of the host, one of each dataplane and one of all, and manifests run no
// other images.
func TestImages(t *testing.T) {
	want := []string{"host", "pointsman"}
	mains, err := filepath.Glob("../plugins/*/pointsman-dataplane-*")
	if err != nil {
		t.Fatal(err)
	}
	for _, main := range mains {
		want = append(want, strings.TrimPrefix(filepath.Base(main), "pointsman-"))
	}
	names := imageNames(t)
	slices.Sort(names)
	slices.Sort(want)
	if !slices.Equal(names, want) {
		t.Errorf("the Containerfile has the images %q, want %q", names, want)
	}
	tag := ":" + regexp.MustCompile(`(?m)^appVersion: "([0-9.]+)"`).FindStringSubmatch(read(t, chart+"Chart.yaml"))[1]
	manifests, err := filepath.Glob("../configs/kubernetes*/*.yaml")
	if err != nil || len(manifests) < 5 {
		t.Fatalf("found only %q: %v", manifests, err)
	}
	for _, file := range manifests {
		for _, m := range regexp.MustCompile(`(?m)^ +image: (\S+)$`).FindAllStringSubmatch(read(t, file), -1) {
			if name := strings.TrimSuffix(strings.TrimPrefix(m[1], registry), tag); !slices.Contains(names, name) {
				t.Errorf("%s runs the image %s, which make images does not make", file, m[1])
			}
		}
	}
}
