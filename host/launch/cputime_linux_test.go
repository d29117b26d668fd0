// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

// TestCPUTime has more threads than processors turn: they run, and wait for their turn.
func TestCPUTime(t *testing.T) {
	if _, err := os.Stat("/proc/self/schedstat"); err != nil {
		t.Skip("needs a kernel that counts how long threads wait: ", err)
	}
	ranBefore, queuedBefore := CPUTime(os.Getpid())
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(3 * runtime.NumCPU()))
	var stop atomic.Bool
	defer stop.Store(true)
	for range 3 * runtime.NumCPU() {
		go func() { // ends with stop
			for !stop.Load() {
			}
		}()
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		ran, queued := CPUTime(os.Getpid())
		if ran > ranBefore && queued-queuedBefore > 50*time.Millisecond {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("it ran %s, and waited %s", ran-ranBefore, queued-queuedBefore)
		}
	}
}
