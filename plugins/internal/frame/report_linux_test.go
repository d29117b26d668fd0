// SPDX-License-Identifier: Apache-2.0

package frame

import (
	"testing"

	"github.com/pointsman/pointsman/sdk"
)

func TestReportIsACopy(t *testing.T) {
	t.Parallel()
	var s status
	before := s.copy().Progress
	s.step()
	s.change(func(r *sdk.Report) { r.Samples = []sdk.Sample{{Name: "a"}} })
	seen := s.copy()
	if seen.Progress <= before {
		t.Errorf("a step is no progress: %+v", seen)
	}
	seen.Samples[0].Name = "b"
	if again := s.copy(); again.Samples[0].Name != "a" {
		t.Error("a reader has changed the report")
	}
}

// TestProgress: CPU time counts as progress, unless the process carries traffic.
func TestProgress(t *testing.T) {
	t.Parallel()
	for _, limits := range [][]sdk.Limit{nil, {sdk.LimitDiesWithProcess}} {
		mode := inMemory(newKernel())
		mode.Description.Limits = limits
		d := New(mode, t.TempDir())
		before := d.Report().Progress
		for began := cpuTime(); cpuTime()-began < 2*effort; {
			// use CPU time
		}
		if progress := d.Report().Progress > before; progress == (limits != nil) {
			t.Errorf("limits %v: CPU time is progress: %t", limits, progress)
		}
	}
}
