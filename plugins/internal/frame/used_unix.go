// SPDX-License-Identifier: Apache-2.0

//go:build unix

package frame

import (
	"syscall"
	"time"
)

// used is how much of the processor this process has used so far.
func used() time.Duration {
	var all syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &all); err != nil {
		return 0
	}
	return time.Duration(all.Utime.Nano() + all.Stime.Nano())
}
