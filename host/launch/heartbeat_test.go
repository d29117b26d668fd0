// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"strings"
	"testing"
	"time"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/wire"
)

// TestHeartbeatOfACall finds at which of the heartbeats, one per second, a call counts as hung.
func TestHeartbeatOfACall(t *testing.T) {
	const second = time.Second
	still := func(i int) wire.Vitals {
		return wire.Vitals{Report: sdk.Report{Progress: 7}, Call: "Sync", CallFor: time.Duration(i) * second}
	}
	for name, c := range map[string]struct {
		beat func(i int) wire.Vitals
		took time.Duration
		want int // number of the heartbeat; zero if the call never counts as hung
	}{
		"hangs":                               {beat: still, want: 5},
		"hangs on a busy node":                {beat: still, took: second},
		"returns too late after its deadline": {beat: func(i int) wire.Vitals { v := still(i); v.Progress, v.Overdue = 0, v.CallFor; return v }, want: 3},
		"reports that it waits":               {beat: func(i int) wire.Vitals { v := still(i); v.Waiting = "the lock"; return v }},
		"makes progress":                      {beat: func(i int) wire.Vitals { v := still(i); v.Progress = uint64(i); return v }},
		"never reports progress":              {beat: func(i int) wire.Vitals { v := still(i); v.Progress = 0; return v }},
		"has nothing to do":                   {beat: func(i int) wire.Vitals { v := still(i); v.Call, v.CallFor = "", 0; return v }},
		"is another call each time":           {beat: func(i int) wire.Vitals { v := still(i); v.CallFor = second / 2; return v }},
		"makes progress now and then":         {beat: func(i int) wire.Vitals { v := still(i); v.Progress += uint64(i / stuckBeats); return v }},
	} {
		var p heartbeat
		found := 0
		for i := 1; i <= 20 && found == 0; i++ {
			var why string
			if p, why = p.next(c.beat(i), c.took); why != "" {
				found = i
			}
			if why != "" && !strings.HasPrefix(why, "Sync ") {
				t.Errorf("%s: the reason is %q", name, why)
			}
		}
		if found != c.want {
			t.Errorf("a call that %s counts as hung at beat %d, want %d", name, found, c.want)
		}
	}
}
