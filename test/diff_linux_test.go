// SPDX-License-Identifier: Apache-2.0

package test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/host/admin"
)

// TestDiff asks a host whose Services are served where something differs, and modes that cannot be
// asked. What a kernel has otherwise is for TestKernelDiff in folder swap.
func TestDiff(t *testing.T) {
	t.Parallel()
	s := begun(t)
	s.until("nothing differs", func() error {
		if got := s.verb("diff"); got.code != 0 || !strings.HasSuffix(got.out, "\nnothing differs\n") || !strings.HasPrefix(got.out, "note: only where Services are reached") {
			return fmt.Errorf("%+v", got)
		}
		return nil
	})
	var d admin.Diff
	if err := json.Unmarshal([]byte(s.verb("diff", "-o", "json").out), &d); err != nil {
		t.Fatal(err)
	}
	if d.Kind != "Diff" || d.Mode != "userspace" || !d.Serves || d.Changes == nil || d.Unserved == nil {
		t.Errorf("%+v", d)
	}
	for words, want := range map[string]string{
		"diff --mode iptables": "diff of iptables: there is no pointsman-dataplane-iptables in ",
		"diff --mode I":        `diff of I: no dataplane can be called so`,
	} {
		if got := s.verb(strings.Fields(words)...); got.code != 1 || !strings.Contains(got.err, want) {
			t.Errorf("pointsman %s exits %d and says %q; want %q", words, got.code, got.err, want)
		}
	}
	if got := s.verb("diff", "userspace"); got.code != 64 {
		t.Errorf("a word too many: %+v", got)
	}
}
