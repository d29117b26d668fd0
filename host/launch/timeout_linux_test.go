// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pointsman/pointsman/test/eventually"
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
	eventually.Succeeds(t, "threads have run and waited", func() error {
		ran, queued := CPUTime(os.Getpid())
		if ran <= ranBefore || queued-queuedBefore <= 50*time.Millisecond {
			return fmt.Errorf("they ran %s, and waited %s", ran-ranBefore, queued-queuedBefore)
		}
		return nil
	})
}
