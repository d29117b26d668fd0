// SPDX-License-Identifier: Apache-2.0

package images

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// machines are the processors of images.
var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64, "ppc64le": elf.EM_PPC64, "s390x": elf.EM_S390}

// TestArchives: each image exists for each processor, under the name in the manifests, has its labels, and has programs
// of that processor which find their interpreter and libraries in it.
func TestArchives(t *testing.T) {
	dir := folder(t)
	for _, name := range names {
		named, all := open(t, filepath.Join(dir, name+".oci.tar")).images(t)
		if named != prefix+name+tag || len(all) != len(machines) {
			t.Errorf("%s is named %s, and is for %d processors", name, named, len(all))
		}
		for arch, machine := range machines {
			image := all[arch]
			for _, label := range []string{"title", "description", "version", "revision", "created", "licenses", "source", "vendor"} {
				if image.Config.Labels["org.opencontainers.image."+label] == "" {
					t.Errorf("%s for %s has no label %s", name, arch, label)
				}
			}
			if created := image.Config.Labels["org.opencontainers.image.created"]; created != image.Created {
				t.Errorf("%s for %s was created at %s, and its label has %s", name, arch, image.Created, created)
			}
			files := image.files(t)
			for at, data := range files {
				if bytes.HasPrefix(data, []byte("\x7fELF")) {
					checkProgram(t, name+": "+at, data, machine, files)
				}
			}
			checkFiles(t, name, files)
		}
	}
}

// files returns an image's files, by path without the first slash; of a link the target, after "-> ".
func (b built) files(t *testing.T) map[string][]byte {
	t.Helper()
	files := make(map[string][]byte)
	for _, layer := range b.layers {
		plain, err := gzip.NewReader(bytes.NewReader(layer))
		if err != nil {
			t.Fatal(err)
		}
		for r := tar.NewReader(plain); ; {
			header, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			data := []byte("-> " + header.Linkname)
			if header.Typeflag == tar.TypeReg {
				if data, err = io.ReadAll(r); err != nil {
					t.Fatal(err)
				}
			}
			files[path.Clean(header.Name)] = data
		}
	}
	return files
}

// checkProgram checks that a program is of this machine, and that files has all that it loads.
func checkProgram(t *testing.T, name string, data []byte, machine elf.Machine, files map[string][]byte) {
	t.Helper()
	f, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if f.Machine != machine {
		t.Errorf("%s is for %s, not %s", name, f.Machine, machine)
	}
	libraries, err := f.ImportedLibraries()
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if interpreter := f.Section(".interp"); interpreter != nil {
		at, err := interpreter.Data()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		libraries = append(libraries, strings.TrimRight(string(at), "\x00"))
	}
	triplet := map[elf.Machine]string{elf.EM_X86_64: "x86_64-linux-gnu", elf.EM_AARCH64: "aarch64-linux-gnu", elf.EM_PPC64: "powerpc64le-linux-gnu", elf.EM_S390: "s390x-linux-gnu"}[machine]
	for _, l := range libraries {
		if files[strings.TrimPrefix(l, "/")] == nil && files["lib/"+triplet+"/"+l] == nil && files["usr/lib/"+triplet+"/"+l] == nil {
			t.Errorf("%s needs %s, which the image does not have", name, l)
		}
	}
}

// TestNothingCalls compares images with the statements of configs/vex: no program in them calls the functions of the C
// library that have the vulnerabilities.
func TestNothingCalls(t *testing.T) {
	dir := folder(t)
	for _, name := range names {
		never := []string{"glob", "glob64"}
		if name != "pointsman" && name != "dataplane-ipvs" { // these two have kmod
			never = append(never, "regcomp", "regexec")
		}
		_, all := open(t, filepath.Join(dir, name+".oci.tar")).images(t)
		for arch, image := range all {
			for at, data := range image.files(t) {
				f, err := elf.NewFile(bytes.NewReader(data))
				if err != nil {
					continue
				}
				calls, _ := f.ImportedSymbols() // a program without libraries has no table
				for _, c := range calls {
					if slices.Contains(never, c.Name) {
						t.Errorf("%s for %s: %s calls %s", name, arch, at, c.Name)
					}
				}
			}
		}
	}
}

// checkFiles checks that an image has what its programs call, and no other program.
func checkFiles(t *testing.T, name string, files map[string][]byte) {
	t.Helper()
	iptables := []string{"usr/sbin/iptables-nft-restore", "usr/sbin/iptables-legacy-restore", "usr/sbin/ip6tables-nft-save", "usr/sbin/ip6tables-legacy-save"}
	ipset := []string{"sbin/ipset", "sbin/modprobe"}
	want, not := []string{"etc/ssl/certs/ca-certificates.crt", "etc/os-release", "etc/passwd"}, []string{"bin/sh", "bin/bash", "usr/bin/dpkg", "usr/sbin/nft", "etc/resolv.conf", "etc/hostname"}
	switch name {
	case "host":
		not = slices.Concat(not, iptables, ipset)
	case "pointsman", "dataplane-ipvs":
		want = slices.Concat(want, iptables, ipset)
	default:
		want, not = slices.Concat(want, iptables), slices.Concat(not, ipset)
	}
	for _, at := range want {
		if files[at] == nil && files["usr/"+at] == nil {
			t.Errorf("%s does not have %s", name, at)
		}
	}
	for _, at := range not {
		if files[at] != nil {
			t.Errorf("%s has %s, which nothing needs", name, at)
		}
	}
}

// TestLists: the contents of an image are listed for each processor: Go's modules and Debian's packages.
func TestLists(t *testing.T) {
	dir := folder(t)
	for _, name := range names {
		want := []string{"github.com/hashicorp/go-plugin", "base-files", "ca-certificates"}
		if name != "host" {
			want = append(want, "iptables", "libc6")
		}
		for arch := range machines {
			text, err := os.ReadFile(filepath.Join(dir, name+"_"+arch+".sbom.json"))
			var list struct {
				Version  string `json:"spdxVersion"`
				Packages []struct{ Name, VersionInfo string }
			}
			if err != nil || json.Unmarshal(text, &list) != nil || !strings.HasPrefix(list.Version, "SPDX-") {
				t.Fatalf("%s for %s: no SPDX: %v", name, arch, err)
			}
			for _, w := range want {
				if !slices.ContainsFunc(list.Packages, func(p struct{ Name, VersionInfo string }) bool { return p.Name == w && p.VersionInfo != "" }) {
					t.Errorf("what %s has for %s does not name %s", name, arch, w)
				}
			}
		}
	}
}

// TestReproducible builds two images again, in another folder: the archives and the lists are the same, byte for byte.
func TestReproducible(t *testing.T) {
	first, again := folder(t), t.TempDir()
	list := []string{"host", "dataplane-ipvs"} // these two have all that the others have
	words := append([]string{"../../configs/container/images", filepath.Join(first, "..", "dist"), again}, list...)
	if os.Getuid() == 0 { // this process has a network namespace of its own (TestMain), without Debian's servers
		words = append([]string{"nsenter", fmt.Sprintf("--net=/proc/%d/ns/net", os.Getppid())}, words...)
	}
	cmd := exec.CommandContext(t.Context(), words[0], words[1:]...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	made, _ := filepath.Glob(again + "/*")
	if len(made) != len(list)*(1+len(machines))+1 { // and the version of the release
		t.Errorf("it made %q", made)
	}
	for _, file := range made {
		now, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		before, err := os.ReadFile(filepath.Join(first, filepath.Base(file)))
		if err != nil || !bytes.Equal(now, before) {
			t.Errorf("%s is another one than before: %v", filepath.Base(file), err)
		}
	}
}
