// SPDX-License-Identifier: Apache-2.0

package test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/pointsman/pointsman/host/admin"
)

// TestDiff runs diff against a host whose Services are served. TestKernelDiff in test/swap has a kernel that differs.
func TestDiff(t *testing.T) {
	t.Parallel()
	s := servingSystem(t)
	s.until("nothing differs", func() error {
		if got := s.verb("diff"); got.code != 0 || got.out != "nothing differs\n" {
			return fmt.Errorf("%+v", got)
		}
		return nil
	})
	var d admin.Diff
	if err := json.Unmarshal([]byte(s.verb("diff", "-o", "json").out), &d); err != nil {
		t.Fatal(err)
	}
	if d.Kind != "Diff" || d.Mode != "userspace" || d.Changes == nil || d.Unserved == nil {
		t.Errorf("%+v", d)
	}
	if got := s.verb("diff", "userspace"); got.code != 64 {
		t.Errorf("a word too many: %+v", got)
	}
}
