// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestParting has a dataplane that announces that its connections would end. A plan names them, and a swap away from it
// is refused with advice until they have ended or --force is given. The same holds if the new dataplane announces what
// would end.
func TestParting(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("needs go: it builds a plugin")
	}
	if os.Geteuid() != 0 { // the canary would call the machine's own addresses, and this plugin serves nothing
		t.Skip("needs root: it makes a network namespace")
	}
	n := bareNode(t, "parting")
	build := exec.Command("go", "build", "-o", n.path("plugins/pointsman-dataplane-parting"), "./testdata/parting")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	n.installCopy(n.path("plugins/pointsman-dataplane-parting"), "plugins/pointsman-dataplane-other")
	const ends = "7 connections would end; wait until they are over"
	n.write("plugins/active", ends)
	n.start()

	out, err := n.verb("mode", "swap", "other", "--dry-run")
	if code := exitCode(err); code != 1 || !strings.Contains(out, "a swap to other would fail") || !strings.Contains(out, "of parting "+ends) {
		t.Errorf("a dry run ends with %d, %v: %s", code, err, out)
	}
	if out, err := n.verb("mode", "swap", "other", "--dry-run", "--force"); err != nil || !strings.Contains(out, "other can serve all that parting serves now") {
		t.Errorf("a dry run with --force ends with %v: %s", err, out)
	}
	before, _ := n.Status(t.Context())
	if out, err := n.verb("mode", "swap", "parting", "--dry-run"); err != nil {
		t.Errorf("a dry run of the same mode ends with %v: %s", err, out)
	}
	if now, err := n.Status(t.Context()); err != nil || now.Dataplane.PID != before.Dataplane.PID {
		t.Errorf("after a dry run process %d serves, and before it was %d: %v", now.Dataplane.PID, before.Dataplane.PID, err)
	}
	if m := n.waitForRest(); m.Mode != "parting" || m.Asked != "" {
		t.Errorf("after dry runs the mode is %s, and %q is asked for", m.Mode, m.Asked)
	}
	if out, err := n.verb("status"); strings.Contains(out, "W009") {
		t.Errorf("after dry runs, the status is %v: %s", err, out)
	}
	out, err = n.verb("mode", "swap", "other", "--wait")
	if code := exitCode(err); code != 1 || !strings.Contains(out, "of parting "+ends) || !strings.Contains(out, "pointsman mode swap other --force") {
		t.Errorf("the swap ends with %d, %v: %s", code, err, out)
	}
	if m := n.waitForRest(); m.Mode != "parting" {
		t.Errorf("after the refusal the mode is %s", m.Mode)
	}
	if out, err := n.verb("mode", "swap", "other", "--wait", "--force"); err != nil {
		t.Errorf("forced, the swap ends with %v: %s", err, out)
	}
	n.waitForMode("other")
	if err := os.Rename(n.path("plugins/active"), n.path("plugins/standby")); err != nil {
		t.Fatal(err)
	}
	out, err = n.verb("mode", "swap", "parting", "--wait")
	if code := exitCode(err); code != 1 || !strings.Contains(out, "check: "+ends) || !strings.Contains(out, "pointsman mode swap parting --force") {
		t.Errorf("the swap back ends with %d, %v: %s", code, err, out)
	}
	if m := n.waitForRest(); m.Mode != "other" {
		t.Errorf("after that refusal the mode is %s", m.Mode)
	}
	if err := os.Remove(n.path("plugins/standby")); err != nil {
		t.Fatal(err)
	}
	n.swapTo("parting") // no connection is left
	n.waitForMode("parting")
}

// exitCode returns the exit code of a program that ended with err.
func exitCode(err error) int {
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		return exit.ExitCode()
	}
	return 0
}
