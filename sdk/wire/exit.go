// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"os"
	"strings"
	"syscall"
)

// An Exit is how a plugin's process ended.
type Exit struct {
	Code   int            // -1: not known, or ended by a signal
	Signal syscall.Signal // zero: none, or not known
	Stderr []string       // the last lines it printed past its log; of a panic, the first
}

// String is a sentence without its subject: "exited with code 2: panic: …".
func (e Exit) String() string {
	if reason := e.reason(); reason != "" {
		return e.how() + ": " + reason
	}
	return e.how()
}

func (e Exit) how() string {
	switch {
	case e.Signal != 0:
		return fmt.Sprintf("was ended by signal %d (%s)", int(e.Signal), e.Signal)
	case e.Code >= 0:
		return fmt.Sprintf("exited with code %d", e.Code)
	}
	return "ended, nobody knows how: it was not a child of this process"
}

// reason is the line most likely to say why: a panic's first, or else the last.
func (e Exit) reason() string {
	if len(e.Stderr) == 0 {
		return ""
	}
	if first := e.Stderr[0]; strings.HasPrefix(first, "panic: ") || strings.HasPrefix(first, "fatal error: ") {
		return first
	}
	return e.Stderr[len(e.Stderr)-1]
}

func exitOf(state *os.ProcessState, stderr []string) Exit {
	exit := Exit{Code: -1, Stderr: stderr}
	if state == nil {
		return exit
	}
	exit.Code = state.ExitCode()
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		exit.Signal = status.Signal()
	}
	return exit
}
