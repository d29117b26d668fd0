// SPDX-License-Identifier: Apache-2.0

package packages

import (
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// sums returns the checksums that a release lists, by file.
func sums(t *testing.T, dir string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "checksums.txt"))
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]string)
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		all[words[1]] = words[0]
	}
	return all
}

// machines are the processors of a release.
var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64, "ppc64le": elf.EM_PPC64, "s390x": elf.EM_S390}

// TestRelease checks that there are archives, packages and SBOMs for each architecture, and kubectl's plugin also for
// other systems, with these checksums, and notes from the commits.
func TestRelease(t *testing.T) {
	dir := release(t)
	all := sums(t, dir)
	kinds := make(map[string]int)
	for name, want := range all {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if sum := sha256.Sum256(text); hex.EncodeToString(sum[:]) != want {
			t.Errorf("the checksum of %s differs from checksums.txt", name)
		}
		_, kind, _ := strings.Cut(name, "_linux_")
		kinds[kind]++
	}
	want := map[string]int{"": 2*4 + 2} // the plugin for two other systems, the manifest for krew, the OpenVEX document
	for arch := range machines {
		maps.Copy(want, map[string]int{arch + ".deb": 5, arch + ".rpm": 5, arch + ".tar.gz": 2, arch + ".tar.gz.sbom.json": 2})
	}
	if !maps.Equal(kinds, want) {
		t.Errorf("the release has %v; want %v", kinds, want)
	}
	notes, err := os.ReadFile(filepath.Join(dir, "NOTES.md"))
	if subject := git("log", "-1", "--no-merges", "--format=%s"); err != nil || !strings.Contains(string(notes), "\n## "+subject) {
		t.Errorf("the notes do not have %q: %v", subject, err)
	}
}

// git returns the output of a git command; nothing without a git repository.
func git(words ...string) string {
	cmd := exec.Command("git", words...)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*")
	out, _ := cmd.Output()
	return strings.TrimSpace(string(out))
}

// mostBytes limits the size of the programs that nodes run, together.
const mostBytes = 100e6

// TestReleasedPrograms checks that programs are small, need no library of the machine, and tell their commit.
func TestReleasedPrograms(t *testing.T) {
	for arch, machine := range machines {
		archives, _ := filepath.Glob(filepath.Join(release(t), "pointsman_*_linux_"+arch+".tar.gz"))
		if len(archives) != 1 {
			t.Fatalf("%s: archives %q", arch, archives)
		}
		dir := t.TempDir()
		if out, err := exec.Command("tar", "-C", dir, "--strip-components=1", "-xzf", archives[0]).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		programs, _ := filepath.Glob(dir + "/pointsman*")
		if len(programs) != 2+len(dataplanes) { // pointsman, pointsman-conformance, and the dataplanes
			t.Fatalf("%s: programs %q", arch, programs)
		}
		bytes := int64(0)
		for _, p := range programs {
			f, err := elf.Open(p)
			if err != nil {
				t.Fatal(err)
			}
			if libraries, _ := f.ImportedLibraries(); f.Machine != machine || len(libraries) > 0 {
				t.Errorf("%s is for %s and needs %q", p, f.Machine, libraries)
			}
			f.Close()
			info, err := os.Stat(p)
			if err != nil {
				t.Fatal(err)
			}
			if filepath.Base(p) != "pointsman-conformance" { // for authors of dataplanes
				bytes += info.Size()
			}
		}
		t.Logf("%s: %.1f MB", arch, float64(bytes)/1e6)
		if bytes > mostBytes {
			t.Errorf("%s: %d bytes in all, more than %.0f", arch, bytes, mostBytes)
		}
		for _, file := range []string{"LICENSE", "README.md", "CHANGELOG.md", "man1/pointsman-status.1", "completions/pointsman.bash", "configs/systemd/pointsman.service", "docs/install.md"} {
			if _, err := os.Stat(filepath.Join(dir, file)); err != nil {
				t.Error(err)
			}
		}
		buildInfo(t, programs)
	}
}

// buildInfo checks what the Go toolchain wrote into the programs.
func buildInfo(t *testing.T, programs []string) {
	t.Helper()
	commit := git("rev-parse", "HEAD")
	for _, p := range programs {
		out, err := exec.Command("go", "version", "-m", p).Output()
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"vcs.revision=" + commit, "vcs.modified=false", "-trimpath=true", "CGO_ENABLED=0"} {
			if !bytes.Contains(out, []byte(want)) {
				t.Errorf("%s was not built with %s", filepath.Base(p), want)
			}
		}
	}
}

// TestSBOMs checks that SBOMs name the libraries in the programs.
func TestSBOMs(t *testing.T) {
	found, _ := filepath.Glob(filepath.Join(release(t), "*.sbom.json"))
	for _, path := range found {
		text, err := os.ReadFile(path)
		var sbom struct {
			Version  string `json:"spdxVersion"`
			Packages []struct{ Name, VersionInfo string }
		}
		if err != nil || json.Unmarshal(text, &sbom) != nil || !strings.HasPrefix(sbom.Version, "SPDX-") {
			t.Fatalf("%s is no SPDX: %v", path, err)
		}
		libraries := []string{"k8s.io/client-go", "github.com/hashicorp/go-plugin", "github.com/vishvananda/netlink"}
		if strings.HasPrefix(filepath.Base(path), "kubectl-") {
			libraries = libraries[:1]
		}
		for _, name := range libraries {
			if !slices.ContainsFunc(sbom.Packages, func(p struct{ Name, VersionInfo string }) bool { return p.Name == name && p.VersionInfo != "" }) {
				t.Errorf("%s does not name %s", filepath.Base(path), name)
			}
		}
	}
	if len(found) != len(machines)+8 { // and those of kubectl's plugin
		t.Errorf("found %q; want %d files", found, len(machines)+8)
	}
}

// TestReproducible builds the release again, in another folder: all but the SBOMs, which contain a time, is the same
// byte for byte.
func TestReproducible(t *testing.T) {
	first, again := release(t), t.TempDir()
	cmd := exec.Command("../../configs/packages/release", again)
	cmd.Env = append(os.Environ(), "RELEASE_FLAGS=--skip=sbom")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	before, after := sums(t, first), sums(t, again)
	maps.DeleteFunc(before, func(name, _ string) bool { return strings.HasSuffix(name, ".sbom.json") })
	if len(after) < 20 || !maps.Equal(before, after) {
		for name, sum := range before {
			if after[name] != sum {
				t.Errorf("%s is %s, and was %s", name, after[name], sum)
			}
		}
	}
}
