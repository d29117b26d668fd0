// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"strings"
	"sync"
)

// tailLines is how much raw output of a plugin is kept for the report of its end.
const tailLines = 20

// dumpBytes is how much is kept of what a Go program prints of its goroutines when it is
// told to end by SIGQUIT.
const dumpBytes = 64 << 10

// A tail keeps the last lines a process printed; once it panics, the first ones
// from there, because those have the reason.
type tail struct {
	mu     sync.Mutex // guards what is below
	lines  []string
	filled bool // from the top: these lines have the reason, later ones do not push them out
	room   int  // for more of a dump, in bytes
}

func (t *tail) add(line string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case !t.filled && (strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ")):
		t.filled = true
		t.lines = []string{line}
	case !t.filled && strings.HasPrefix(line, "SIGQUIT: "):
		t.filled, t.room = true, dumpBytes
		t.lines = []string{line}
	case len(t.lines) < tailLines:
		t.lines = append(t.lines, line)
	case t.room > len(line):
		t.room -= len(line) + 1
		t.lines = append(t.lines, line)
	case !t.filled:
		t.lines = append(t.lines[1:len(t.lines):len(t.lines)], line)
	}
}

func (t *tail) text() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]string(nil), t.lines...)
}
