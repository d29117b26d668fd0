// SPDX-License-Identifier: Apache-2.0

package windows

import (
	"errors"
	"os"
	"os/exec"
	"strings"
)

// openState: a host does not begin where others may change its state, and says what to type.
func (n *node) openState() {
	n.Helper()
	dir := n.path("prefix/drive_c/open")
	if err := errors.Join(os.Mkdir(dir, 0o755), os.Chmod(dir, 0o777)); err != nil {
		n.Fatal(err)
	}
	out, exit := n.verb("run", "--state-dir", `C:\open`)
	if exit != 1 || !strings.Contains(out, `C:\open may be written to by`) || !strings.Contains(out, `icacls "C:\open" /inheritance:r`) {
		n.Errorf("a state directory that is open to others: exit %d\n%s", exit, out)
	}
}

// ends: what a host or a plugin that is killed takes along, and which plugins are refused. The tests
// of host/launch run under wine.
func (n *node) ends() {
	n.Helper()
	build := exec.Command("go", "test", "-c", "-trimpath", "-o", n.path("bin/launch.exe"), "../../host/launch")
	build.Env = append(os.Environ(), "GOOS=windows", "GOARCH=amd64", "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		n.Fatalf("go test -c: %v\n%s", err, out)
	}
	for _, test := range []string{"TestTie", "TestGather", "TestGuardedBinary"} {
		if out, exit := n.outside(n.loader, n.path("bin/launch.exe"), "-test.v", "-test.run=^"+test+"$"); exit != 0 || !strings.Contains(out, "--- PASS: "+test) {
			n.Errorf("%s: exit %d\n%s", test, exit, out)
		}
	}
}
