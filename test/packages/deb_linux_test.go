// SPDX-License-Identifier: Apache-2.0

package packages

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
)

// dataplanes are those with a package each.
var dataplanes = []string{"iptables", "ipvs", "nftables", "userspace"}

// packaged returns this machine's packages of a format: the host's, and those of all dataplanes.
func packaged(t testing.TB, format string) []string {
	t.Helper()
	dir := release(t)
	var all []string
	for _, name := range append([]string{""}, dataplanes...) {
		if name != "" {
			name = "-dataplane-" + name
		}
		found, err := filepath.Glob(filepath.Join(dir, "pointsman"+name+"_*_linux_"+runtime.GOARCH+"."+format))
		if err != nil || len(found) != 1 {
			t.Fatalf("%d packages pointsman%s in %s: %v", len(found), name, dir, err)
		}
		all = append(all, found[0])
	}
	return all
}

// older makes packages of an older version, with other binaries.
func older(n *node, packages []string) []string {
	n.Helper()
	var all []string
	for i, p := range packages {
		dir := filepath.Join(n.TempDir(), "package")
		n.run("dpkg-deb", "-R", p, dir)
		control, err := os.ReadFile(dir + "/DEBIAN/control")
		if err != nil {
			n.Fatal(err)
		}
		control = regexp.MustCompile(`(?m)^Version: .*$`).ReplaceAll(control, []byte("Version: 0.0.0~0"))
		if err := os.WriteFile(dir+"/DEBIAN/control", control, 0o644); err != nil {
			n.Fatal(err)
		}
		binaries, _ := filepath.Glob(dir + "/usr/libexec/pointsman/*")
		for _, b := range append(binaries, dir+"/usr/bin/pointsman") {
			f, err := os.OpenFile(b, os.O_APPEND|os.O_WRONLY, 0)
			if os.IsNotExist(err) {
				continue
			}
			if err != nil {
				n.Fatal(err)
			}
			_, _ = f.WriteString("older")
			if err := f.Close(); err != nil {
				n.Fatal(err)
			}
		}
		to := filepath.Join(n.TempDir(), filepath.Base(packages[i]))
		n.run("dpkg-deb", "-b", "--root-owner-group", "-Znone", dir, to)
		all = append(all, to)
	}
	return all
}

// install installs packages with dpkg, from a folder on the node.
func (n *node) install(packages []string) string {
	n.Helper()
	words := []string{"dpkg", "--force-confold", "-i"}
	for _, p := range packages {
		at := "/tmp/" + filepath.Base(p)
		n.run("cp", p, n.path(at))
		words = append(words, at)
	}
	return n.runInside(words...)
}

// TestKernelPackages installs Debian's packages and purges them: they bring what a node needs, and leave nothing.
// TestKernelSystemd tests what serves while they are upgraded and removed.
func TestKernelPackages(t *testing.T) {
	n := newNode(t)
	if said := n.install(packaged(t, "deb")); !strings.Contains(said, "systemctl enable --now pointsman") {
		t.Errorf("dpkg does not print the next command:\n%s", said)
	}
	n.installed()
	n.configure("iptables")
	n.purgeAll()
}

// installed checks what the packages installed.
func (n *node) installed() {
	n.Helper()
	for _, at := range []string{
		"/usr/share/man/man1/pointsman-status.1", "/usr/share/bash-completion/completions/pointsman", "/usr/share/zsh/vendor-completions/_pointsman",
		"/usr/share/fish/vendor_completions.d/pointsman.fish", "/usr/lib/systemd/system/pointsman.service", "/usr/lib/systemd/system/pointsman-dataplane@.service",
	} {
		if n.file(at) == "" {
			n.Errorf("%s is empty", at)
		}
	}
	if !strings.Contains(n.file("/etc/pointsman/host.yaml"), "\nmode: iptables\n") {
		n.Errorf("the settings are\n%s", n.file("/etc/pointsman/host.yaml"))
	}
	if got := n.runInside("stat", "-c", "%U:%G %a", "/etc/pointsman", "/etc/pointsman/host.yaml"); got != "root:pointsman 750\nroot:pointsman 640\n" {
		n.Errorf("the owner and mode of the settings are\n%s", got)
	}
	for _, name := range dataplanes {
		n.runInside("/usr/libexec/pointsman/pointsman-dataplane-"+name, "describe")
		if _, err := os.Lstat(n.path("/etc/systemd/system/pointsman.service.wants/pointsman-dataplane@" + name + ".service")); err != nil {
			n.Errorf("the unit of %s does not start with the host: %v", name, err)
		}
	}
	n.runInside("pointsman", "config", "validate", "--file-only", "/etc/pointsman/host.yaml")
}

// TestDependencies: a dataplane's package depends on the programs that it calls.
func TestDependencies(t *testing.T) {
	for i, want := range []string{"systemd", "pointsman, iptables", "pointsman, iptables, ipset, kmod", "pointsman", "pointsman, iptables"} {
		p := packaged(t, "deb")[i]
		got, err := exec.Command("dpkg-deb", "-f", p, "Depends").Output()
		if err != nil || strings.TrimSpace(string(got)) != want {
			t.Errorf("%s depends on %q, want %q: %v", filepath.Base(p), got, want, err)
		}
	}
}

// remove removes a dataplane's package, and the host with its process: the rules keep serving, and dpkg prints that
// nothing updates them.
func (n *node) remove(mode string) {
	n.Helper()
	said := n.runInside("dpkg", "-r", "pointsman-dataplane-"+mode)
	if !strings.Contains(said, "nothing updates it") || !strings.Contains(said, "apt purge pointsman-dataplane-"+mode) {
		n.Errorf("dpkg does not print that the rules stay and how to remove them:\n%s", said)
	}
	if got := n.runInside("stat", "-c", "%U %a", "/var/lib/pointsman-cleanup", "/var/lib/pointsman-cleanup/pointsman-dataplane-"+mode); got != "root 700\nroot 755\n" {
		n.Errorf("the owner and mode of the copy that cleans up are %s", got)
	}
	if rules(mode) == "" {
		n.Errorf("%s: removing the package took the rules away", mode)
	}
}

// purge also removes what the dataplane wrote to the kernel.
func (n *node) purge(mode string) {
	n.Helper()
	n.runInside("dpkg", "-P", "pointsman-dataplane-"+mode)
	if left := rules(mode); left != "" {
		n.Errorf("%s: after the purge the kernel has\n%s", mode, left)
	}
	if _, err := os.Stat(n.path("/var/lib/pointsman-cleanup")); !os.IsNotExist(err) {
		n.Errorf("%s: what cleans up is still there: %v", mode, err)
	}
}

// rules returns the kernel's rules of a mode.
func rules(mode string) string {
	words := map[string][]string{"iptables": {"iptables-save"}, "nftables": {"nft", "list", "tables"}}[mode]
	out, _ := exec.Command(words[0], words[1:]...).Output()
	mark := map[string]string{"iptables": "KUBE-SVC-", "nftables": "table ip pointsman\n"}[mode]
	if !strings.Contains(string(out), mark) {
		return ""
	}
	return string(out)
}

// purgeAll purges everything: only the user is left, and the folder with the administrator's files.
func (n *node) purgeAll() {
	n.Helper()
	words := []string{"dpkg", "-P"}
	for _, name := range dataplanes {
		words = append(words, "pointsman-dataplane-"+name)
	}
	n.runInside(append(words, "pointsman")...)
	var left []string
	for _, top := range []string{"/etc", "/usr", "/var"} {
		_ = filepath.WalkDir(n.path(top), func(path string, _ fs.DirEntry, err error) error {
			if err == nil && strings.Contains(filepath.Base(path), "pointsman") {
				left = append(left, strings.TrimPrefix(path, n.root))
			}
			return nil
		})
	}
	if len(left) != 1 || left[0] != "/etc/pointsman" {
		n.Errorf("after all packages were purged, these files are left: %q", left)
	}
}
