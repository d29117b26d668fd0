// SPDX-License-Identifier: Apache-2.0

package track

import (
	"runtime"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/test/eventually"
)

// TestFreeze blocks changes, and nothing else.
func TestFreeze(t *testing.T) {
	tr := New(nil)
	tr.Synced()
	c := tr.Cursor(sdk.Description{})
	want(t, "the first update", nextUpdate(c), "full")
	thaw := tr.Freeze()
	came := make(chan struct{})
	go func() { // ends when the tracker is thawed
		defer close(came)
		tr.Configure(Facts{NodeName: "n2"})
	}()
	eventually.True(t, "the change waits at the gate", func() bool {
		select {
		case <-came:
			t.Fatal("a change was accepted")
		default:
		}
		stacks := make([]byte, 1<<20)
		return strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), "sync.(*RWMutex).RLock(")
	})
	if _, ok := c.Next(); ok {
		t.Error("Next returns an update, though no change was accepted")
	}
	thaw()
	<-came
	if _, ok := c.Next(); !ok {
		t.Error("the blocked change was lost")
	}
}
