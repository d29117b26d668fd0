// SPDX-License-Identifier: Apache-2.0

package packages

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestKernelRPMs installs, upgrades and erases packages with rpm: an upgrade keeps the settings, and erasing leaves the
// rules and prints the command that removes them. The node is a Debian here too; rpm runs the packages' scripts in its
// folder, and knows nothing of dpkg.
func TestKernelRPMs(t *testing.T) {
	packages := packaged(t, "rpm")
	n := newNode(t)
	if err := os.Mkdir(n.path("/rpmdb"), 0o755); err != nil {
		t.Fatal(err)
	}
	rpm := func(words ...string) string {
		n.Helper()
		return n.run(append([]string{"rpm", "--root", n.root, "--dbpath", "/rpmdb", "--force-debian", "--nodeps"}, words...)...)
	}
	if said := rpm(append([]string{"-i"}, packages...)...); !strings.Contains(said, "systemctl enable --now pointsman") {
		t.Errorf("rpm does not print the next command:\n%s", said)
	}
	n.installed()
	n.configure("iptables")
	rpm(append([]string{"-U", "--replacepkgs"}, packages...)...)
	if !strings.Contains(n.file("/etc/pointsman/host.yaml"), "files: {path: services}") {
		t.Error("the upgrade replaced the settings")
	}
	n.runInside("iptables", "-t", "nat", "-N", "KUBE-SVC-LEFT")
	defer n.runInside("iptables", "-t", "nat", "-X", "KUBE-SVC-LEFT")
	said := rpm("-e", "pointsman-dataplane-iptables")
	if want := "/usr/libexec/pointsman/pointsman-dataplane-iptables cleanup"; !strings.Contains(said, want) {
		t.Errorf("rpm does not name %q:\n%s", want, said)
	}
	if rules("iptables") == "" {
		t.Error("erasing the package removed the rules")
	}
	rpm("-e", "pointsman", "pointsman-dataplane-ipvs", "pointsman-dataplane-nftables", "pointsman-dataplane-userspace")
	left, _ := filepath.Glob(n.path("/usr/*/pointsman*"))
	links, _ := filepath.Glob(n.path("/etc/systemd/system/pointsman*")) // both patterns are valid
	if left = append(left, links...); len(left) > 0 {
		t.Errorf("after all packages were erased, these files are left: %q", left)
	}
}
