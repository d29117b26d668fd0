// SPDX-License-Identifier: Apache-2.0

package test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// TestReleaseDocuments: the manifest for krew has the checksum of each released archive of kubectl's plugin; the
// OpenVEX document has the release's version and time, and names images that exist; both have a checksum.
func TestReleaseDocuments(t *testing.T) {
	const version = "1.2.3-rc.1"
	var release struct {
		Builds []struct {
			ID      string
			Targets []string
		}
	}
	if err := yaml.Unmarshal([]byte(read(t, "../.goreleaser.yaml")), &release); err != nil {
		t.Fatal(err)
	}
	dir, sums, want := t.TempDir(), "", make(map[string]string)
	for _, build := range release.Builds {
		for i, target := range build.Targets {
			if build.ID == "kubectl" {
				file := fmt.Sprintf("kubectl-pointsman_%s_%s.tar.gz", version, target)
				want[file] = strings.Repeat(fmt.Sprint(i), 64)
				sums += want[file] + "  " + file + "\n"
				writeIn(t, dir, file, "")
			}
		}
	}
	documents := func(sums string) (string, error) {
		writeIn(t, dir, "checksums.txt", sums)
		out, err := exec.CommandContext(t.Context(), "../configs/packages/documents", dir, "1700000000").CombinedOutput()
		return string(out), err
	}
	if out, err := documents(sums); err != nil {
		t.Fatalf("documents: %v: %s", err, out)
	}
	krew, vex := read(t, filepath.Join(dir, "pointsman.yaml")), read(t, filepath.Join(dir, "pointsman.openvex.json"))
	got := make(map[string]string)
	for _, m := range regexp.MustCompile(`/v`+version+`/(\S+)\n +sha256: "(\w+)"`).FindAllStringSubmatch(krew, -1) {
		got[m[1]] = m[2]
	}
	if !maps.Equal(got, want) || strings.Contains(krew, ": \"@") {
		t.Errorf("krew gets %v, want %v, in\n%s", got, want, krew)
	}
	if !strings.Contains(vex, "/v"+version+"/") || !strings.Contains(vex, `"timestamp": "2023-11-14T22:13:20Z"`) || !json.Valid([]byte(vex)) {
		t.Errorf("the OpenVEX document is\n%s", vex)
	}
	for _, m := range regexp.MustCompile(`"pkg:oci/([^?]*)\?repository_url=(\S*)"`).FindAllStringSubmatch(vex, -1) {
		if !slices.Contains(imageNames(t), m[1]) || m[2] != registry+m[1] {
			t.Errorf("the OpenVEX document names %s, which is no image", m[0])
		}
	}
	for _, file := range []string{"pointsman.yaml", "pointsman.openvex.json"} {
		if !strings.Contains(read(t, filepath.Join(dir, "checksums.txt")), "  "+file+"\n") {
			t.Errorf("%s has no checksum, and so no signature", file)
		}
	}
	if out, err := documents(""); err == nil || !strings.Contains(out, "there is no kubectl-pointsman_"+version) {
		t.Errorf("without sums it says %v: %s", err, out)
	}
}
