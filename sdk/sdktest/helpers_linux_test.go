// SPDX-License-Identifier: Apache-2.0

package sdktest

import (
	"context"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestHelpers holds a plugin that keeps a daemon to what the contract says of that. One that is
// declared is no child that was left, and is adopted; one that is not is named, with what to do.
func TestHelpers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pointsman-dataplane-wrapper")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", path, "../../test/wrapper").CombinedOutput(); err != nil {
		t.Skipf("needs go to build the plugin: %v\n%s", err, out)
	}
	const adopted, left, cleans = "C06/helpers-are-adopted", "C11/no-children-left", "C06/cleanup-leaves-nothing"
	findings := func() map[string]Finding {
		report, err := ConformBinary(ctx, path, nil, Options{TempDir: t.TempDir(), Run: regexp.MustCompile("^(" + adopted + "|" + left + "|" + cleans + ")$")})
		if err != nil {
			t.Fatal(err)
		}
		all := make(map[string]Finding)
		for _, f := range report.Findings {
			all[f.Check] = f
		}
		return all
	}
	all := findings()
	for _, name := range []string{adopted, left} {
		if f := all[name]; f.Status != Pass {
			t.Errorf("declared: %s", f)
		}
	}
	if f := all[cleans]; strings.Contains(f.String(), "helpers") {
		t.Errorf("Cleanup: %s", f)
	}
	t.Setenv("UNDECLARED", "1")
	f := findings()[left]
	if text := f.String(); f.Status != Fail || !strings.Contains(text, "/sleep)") || !strings.Contains(text, "helper.Start") {
		t.Errorf("undeclared: %s; want it to name what was left, and how to declare it", text)
	}
}
