// SPDX-License-Identifier: Apache-2.0

//go:build unix

package frame

import (
	"syscall"
	"time"
)

// cpuTime returns the CPU time that this process has used.
func cpuTime() time.Duration {
	var all syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &all); err != nil {
		return 0
	}
	return time.Duration(all.Utime.Nano() + all.Stime.Nano())
}
