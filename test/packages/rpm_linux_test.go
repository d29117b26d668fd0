// SPDX-License-Identifier: Apache-2.0

package packages

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestKernelRPMs installs, upgrades and erases packages of RPM: an upgrade loses nothing, and erasing leaves
// the rules and says by which command they are taken away. The node is a Debian all the same; rpm
// runs what the packages bring below its folder, and knows nothing of dpkg's programs there.
func TestKernelRPMs(t *testing.T) {
	packages := packaged(t, "rpm")
	n := newNode(t)
	db := filepath.Join(n.root, "rpmdb")
	if err := os.Mkdir(db, 0o755); err != nil {
		t.Fatal(err)
	}
	rpm := func(words ...string) string {
		n.Helper()
		return n.run(append([]string{"rpm", "--root", n.root, "--dbpath", "/rpmdb", "--force-debian", "--nodeps"}, words...)...)
	}
	if said := rpm(append([]string{"-i"}, packages...)...); !strings.Contains(said, "systemctl enable --now pointsman") {
		t.Errorf("rpm does not say what is to be done:\n%s", said)
	}
	n.installed()
	n.configure("iptables")
	n.start("iptables")
	load := n.load()
	was := n.serves("iptables")
	rpm(append([]string{"-U", "--replacepkgs"}, packages...)...)
	if is := n.serves("iptables"); is == was {
		t.Errorf("after an upgrade process %d serves on", is)
	}
	if n.file("/etc/pointsman/host.yaml") == "" || !strings.Contains(n.file("/etc/pointsman/host.yaml"), "files: {path: services}") {
		t.Error("the upgrade replaced the settings")
	}
	said := rpm("-e", "pointsman-dataplane-iptables")
	if want := "/usr/libexec/pointsman/pointsman-dataplane-iptables cleanup"; !strings.Contains(said, want) {
		t.Errorf("rpm does not name %q:\n%s", want, said)
	}
	n.stop(syscall.SIGINT)
	if rules("iptables") == "" {
		t.Error("erasing the package took the rules away")
	}
	load.Done(n, "upgraded and erased")
	rpm("-i", packages[1])
	n.in("/usr/libexec/pointsman/pointsman-dataplane-iptables", "cleanup")
	if left := rules("iptables"); left != "" {
		t.Errorf("after the cleanup that was named the kernel has\n%s", left)
	}
	rpm("-e", "pointsman", "pointsman-dataplane-iptables", "pointsman-dataplane-ipvs", "pointsman-dataplane-nftables", "pointsman-dataplane-userspace")
	left, _ := filepath.Glob(n.path("/usr/*/pointsman*"))
	links, _ := filepath.Glob(n.path("/etc/systemd/system/pointsman*")) // neither pattern is a user's
	if left = append(left, links...); len(left) > 0 {
		t.Errorf("after all was erased there are %q", left)
	}
}
