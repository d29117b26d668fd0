// SPDX-License-Identifier: Apache-2.0

package sdktest

import (
	"errors"
	"fmt"
	"time"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/wire"
)

// countedWithin is how long a connection may take to be counted: some kernels sum up seldom.
const countedWithin = time.Minute

// countsRise: what a Service has had rises with its connections, and never falls while it is counted from
// the same time.
func countsRise(t *trial) {
	s := t.calling("cluster-ip", 1)
	t.serve(s)
	was := t.counted()
	stage, err := t.stage(s)
	t.need(err)
	defer stage.Close()
	sent := uint64(0)
	for range 3 {
		for _, p := range s.Packets {
			a, err := stage.Send(t.ctx, p)
			t.need(err)
			if a.Verdict == sdk.Forward && p.Want.Verdict == sdk.Forward && !p.Want.Unserved {
				sent++
			}
		}
	}
	rise := uint64(0)
	t.need(poll(t.ctx, countedWithin, func() error {
		now := t.counted()
		for name, n := range now {
			before := was[name]
			if !before.Since.Equal(n.Since) {
				before = sdk.Traffic{} // it is counted from another time on
			}
			if n.Connections < before.Connections || n.BytesIn < before.BytesIn || n.BytesOut < before.BytesOut {
				t.fail(mismatch{fmt.Sprintf("%s to have had no less than %d connections", name, before.Connections), fmt.Sprintf("%+v", n)})
			}
			rise += n.Connections - before.Connections
		}
		if was = now; rise < sent {
			return mismatch{fmt.Sprintf("Count to tell of %d connections", sent), fmt.Sprint(rise)}
		}
		return nil
	}))
}

// counted is what Services have had, if the dataplane can tell.
func (t *trial) counted() map[sdk.Name]sdk.Traffic {
	counter, can := t.dp.(sdk.Counter)
	if !can {
		t.fail(excused{"it does not count what Services have had"})
	}
	all := make(map[sdk.Name]sdk.Traffic)
	err := counter.Count(t.ctx, func(n sdk.Traffic) error { all[n.Name] = n; return nil })
	var refusal *sdk.Refusal
	switch {
	case errors.Is(err, wire.ErrUnsupported):
		t.fail(excused{"it does not count what Services have had"})
	case errors.As(err, &refusal):
		t.fail(excused{"it does not count what Services have had: " + refusal.Error()})
	}
	t.need(err)
	return all
}
