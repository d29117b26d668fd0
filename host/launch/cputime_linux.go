// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// CPUTime returns how long the threads of a process have run, and how long they waited for a
// processor. It is nothing where the kernel does not count that.
func CPUTime(pid int) (ran, queued time.Duration) {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	for _, file := range threads {
		text, err := os.ReadFile(file)
		var on, off time.Duration
		if err == nil {
			_, err = fmt.Sscan(string(text), &on, &off)
		}
		if err == nil { // else it ended just now
			ran, queued = ran+on, queued+off
		}
	}
	return ran, queued
}
