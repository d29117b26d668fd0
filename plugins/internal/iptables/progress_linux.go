// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"bytes"
	"fmt"
	"os"
	"time"
)

// followProgress tells Heard each second in which the program with process id pid got on, until
// stop. One that loads much is silent for long, and uses the processor; one that hangs
// does not.
func (t Tool) followProgress(pid int) (stop func()) {
	if t.Heard == nil {
		return func() {}
	}
	ended, over := make(chan struct{}), make(chan struct{})
	go func() { // ends with stop, which waits for it
		defer close(over)
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()
		var before string
		for {
			select {
			case <-ended:
				return
			case <-ticker.C:
			}
			if now := used(pid); now != before {
				before = now
				t.Heard()
			}
		}
	}()
	return func() { close(ended); <-over }
}

// used is what of the processor a process has used so far, as the kernel writes it:
// in its own code, and in the kernel's for it. Empty: there is no such process.
func used(pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	// The name, in parentheses, may have spaces; the two are the 12th and 13th after it.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 13 {
		return ""
	}
	return string(fields[11]) + " " + string(fields[12])
}
