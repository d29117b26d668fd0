// SPDX-License-Identifier: Apache-2.0

package sdktest

import (
	"context"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

// TestPrinter checks the example as a binary. It serves nothing, so it does not conform, but it
// passes the checks that need no packets.
func TestPrinter(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "pointsman-dataplane-printer")
	if runtime.GOOS == "windows" {
		path += ".exe"
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", path, "../examples/printer").CombinedOutput(); err != nil {
		t.Skipf("needs go to build the example: %v\n%s", err, out)
	}
	told := 0
	report, err := Check(ctx, Binary(path), func(Finding) { told++ })
	if err != nil {
		t.Fatal(err)
	}
	t.Log(report)
	if report.Name != "printer" || report.Conforms() {
		t.Errorf("it should not conform: %s", report.Verdict())
	}
	if told != len(report.Findings) {
		t.Errorf("%d of %d findings were told", told, len(report.Findings))
	}
	want := map[string]Status{
		"C00/first-is-full":              Pass,
		"C00/new-session-starts-over":    Pass,
		"C00/older-session-is-fenced":    Pass,
		"C01/packets-are-sent":           NotRun, // no testbed can send packets to it
		"C04/address-not-ours":           Pass,
		"C06/cleanup-of-nothing":         Pass,
		"C11/no-children-left":           Pass,
		"C12/drift-is-repaired":          Limit,
		"C13/unknown-kind":               NotRun,
		"C03/established-tcp-stays":      NotRun,
		"C07/draining-keeps-established": NotRun,
	}
	for _, f := range report.Findings {
		if s, ok := want[f.Check]; ok && f.Status != s {
			t.Errorf("%s, want %s", f, s)
		}
		if f.Status == Fail && f.Check != "C05/ten-thousand-services" { // the printer prints all Services after each change
			t.Errorf("%s", f)
		}
	}
}
