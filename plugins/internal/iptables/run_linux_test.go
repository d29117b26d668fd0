// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"context"
	"io"
	"sync/atomic"
	"testing"
	"time"
)

// Heard is called while a program uses CPU time, and not while it sleeps.
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
		_, _ = tool.once(ctx, io.Discard, "sh", nil, "-c", script) // ctx kills it
		cancel()
		if got := heard.Load() >= 3; got != want {
			t.Errorf("%q: Heard was called %d times", script, heard.Load())
		}
	}
}
