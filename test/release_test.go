// SPDX-License-Identifier: Apache-2.0

package test

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// releaseTargets are what .goreleaser.yaml builds each program for, by its id: linux_amd64.
func releaseTargets(t *testing.T) map[string][]string {
	t.Helper()
	var release struct {
		Builds []struct {
			ID      string
			Targets []string
		}
	}
	if err := yaml.Unmarshal([]byte(read(t, "../.goreleaser.yaml")), &release); err != nil {
		t.Fatal(err)
	}
	all := make(map[string][]string)
	for _, b := range release.Builds {
		all[b.ID] = b.Targets
	}
	return all
}

// TestReleaseTargets: all programs of nodes are built for the same processors, and so are images.
func TestReleaseTargets(t *testing.T) {
	targets := releaseTargets(t)
	want := []string{"linux_amd64", "linux_arm64", "linux_ppc64le", "linux_s390x"}
	for _, id := range []string{"pointsman", "iptables", "ipvs", "nftables", "userspace", "conformance"} {
		if !slices.Equal(targets[id], want) {
			t.Errorf("%s is built for %q, want %q", id, targets[id], want)
		}
	}
	list := regexp.MustCompile(`(?m)^architectures=\(([^)]*)\)`).FindStringSubmatch(read(t, "../configs/container/images"))
	if list == nil || !slices.Equal(strings.Fields(list[1]), []string{"amd64", "arm64", "ppc64le", "s390x"}) {
		t.Errorf("images are built for %q", list)
	}
	if !strings.Contains(read(t, "../configs/packages/release"), "for arch in riscv64; do") {
		t.Error("a release does not compile for what it is not built for")
	}
}

// TestReleaseDocuments: the manifest for krew has each archive of kubectl's plugin, and with the sum that it has; the
// OpenVEX document has the release's name and time.
func TestReleaseDocuments(t *testing.T) {
	const version = "1.2.3-rc.1"
	dir, sums, want := t.TempDir(), "", make(map[string]string)
	for i, target := range releaseTargets(t)["kubectl"] {
		file, sum := fmt.Sprintf("kubectl-pointsman_%s_%s.tar.gz", version, target), strings.Repeat(fmt.Sprint(i), 64)
		writeIn(t, dir, file, "")
		sums += sum + "  " + file + "\n"
		want[target] = sum
	}
	writeIn(t, dir, "checksums.txt", sums)
	if out, err := exec.CommandContext(t.Context(), "../configs/packages/documents", dir, "1700000000").CombinedOutput(); err != nil {
		t.Fatalf("documents: %v: %s", err, out)
	}

	var krew struct {
		APIVersion string `yaml:"apiVersion"`
		Kind       string
		Metadata   struct{ Name string }
		Spec       struct {
			Version, ShortDescription string
			Platforms                 []struct {
				Selector struct {
					MatchLabels struct{ OS, Arch string } `yaml:"matchLabels"`
				}
				URI, SHA256, Bin string
			}
		}
	}
	if err := yaml.Unmarshal([]byte(read(t, filepath.Join(dir, "pointsman.yaml"))), &krew); err != nil {
		t.Fatal(err)
	}
	if krew.APIVersion != "krew.googlecontainertools.github.com/v1alpha2" || krew.Kind != "Plugin" || krew.Metadata.Name != "pointsman" || krew.Spec.Version != "v"+version {
		t.Errorf("krew reads %+v", krew)
	}
	for _, p := range krew.Spec.Platforms {
		os, arch := p.Selector.MatchLabels.OS, p.Selector.MatchLabels.Arch
		target := os + "_" + arch
		uri := fmt.Sprintf("https://github.com/pointsman/pointsman/releases/download/v%s/kubectl-pointsman_%[1]s_%s.tar.gz", version, target)
		bin := map[bool]string{true: "kubectl-pointsman.exe", false: "kubectl-pointsman"}[os == "windows"]
		if p.SHA256 != want[target] || p.URI != uri || p.Bin != bin {
			t.Errorf("krew gets %+v for %s, want %s with the sum %s", p, target, uri, want[target])
		}
		delete(want, target)
	}
	if len(want) > 0 {
		t.Errorf("krew gets nothing for %v", want)
	}

	var vex struct {
		Context    string `json:"@context"`
		ID         string `json:"@id"`
		Author     string
		Timestamp  string
		Version    int
		Statements []struct {
			Vulnerability struct{ Name string }
			Products      []struct {
				ID string `json:"@id"`
			}
			Status, Justification string
			Impact                string `json:"impact_statement"`
		}
	}
	if err := json.Unmarshal([]byte(read(t, filepath.Join(dir, "pointsman.openvex.json"))), &vex); err != nil {
		t.Fatal(err)
	}
	if vex.Context != "https://openvex.dev/ns/v0.2.0" || !strings.Contains(vex.ID, "/v"+version+"/") || vex.Author == "" || vex.Timestamp != "2023-11-14T22:13:20Z" || vex.Version < 1 || len(vex.Statements) == 0 {
		t.Errorf("the OpenVEX document has %+v", vex)
	}
	images := readImages(t)
	for _, s := range vex.Statements {
		if !strings.HasPrefix(s.Vulnerability.Name, "CVE-") || s.Status != "not_affected" || s.Justification == "" || s.Impact == "" || len(s.Products) == 0 {
			t.Errorf("the OpenVEX document states %+v", s)
		}
		for _, p := range s.Products {
			name, _, _ := strings.Cut(strings.TrimPrefix(p.ID, "pkg:oci/"), "?")
			if images[name] == nil || p.ID != "pkg:oci/"+name+"?repository_url="+registry+name {
				t.Errorf("the OpenVEX document names %s, which is no image", p.ID)
			}
		}
	}
	for _, file := range []string{"pointsman.yaml", "pointsman.openvex.json"} {
		if text := read(t, filepath.Join(dir, file)); strings.Contains(text, "@VERSION@") || strings.Contains(text, "@TIME@") || strings.Contains(text, "@SHA256@") {
			t.Errorf("%s is not filled in:\n%s", file, text)
		}
		if !strings.Contains(read(t, filepath.Join(dir, "checksums.txt")), "  "+file+"\n") {
			t.Errorf("%s has no checksum, and so no signature", file)
		}
	}

	// An archive that is not there is an error, not a manifest without a sum.
	writeIn(t, dir, "checksums.txt", "")
	if out, err := exec.CommandContext(t.Context(), "../configs/packages/documents", dir, "0").CombinedOutput(); err == nil || !strings.Contains(string(out), "there is no kubectl-pointsman_"+version) {
		t.Errorf("without sums it says %v: %s", err, out)
	}
}
