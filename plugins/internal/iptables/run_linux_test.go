// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"context"
	"io"
	"sync/atomic"
	"testing"
	"time"
)

// TestFollowProgress hears of a program that is at work, and nothing of one that sleeps.
func TestFollowProgress(t *testing.T) {
	for script, want := range map[string]bool{"while :; do :; done": true, "sleep 60": false} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		var heard atomic.Int64
		tool := Tool{Heard: func() {
			if heard.Add(1) == 3 {
				cancel()
			}
		}}
		if !want {
			time.AfterFunc(4*time.Second, cancel)
		}
		_, _ = tool.once(ctx, io.Discard, "sh", nil, "-c", script) // it is killed
		cancel()
		if got := heard.Load() >= 3; got != want {
			t.Errorf("%q was heard of %d times", script, heard.Load())
		}
	}
}
