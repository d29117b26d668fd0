// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"strings"
	"sync"
)

// tailLines is how much raw output of a plugin is kept for the report of its end.
const tailLines = 20

// A tail keeps the last lines a process printed; once it panics, the first ones
// from there, because those have the reason.
type tail struct {
	mu    sync.Mutex // guards what is below
	lines []string
	panic bool
}

func (t *tail) add(line string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case !t.panic && (strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ")):
		t.panic = true
		t.lines = []string{line}
	case len(t.lines) < tailLines:
		t.lines = append(t.lines, line)
	case !t.panic:
		t.lines = append(t.lines[1:len(t.lines):len(t.lines)], line)
	}
}

func (t *tail) text() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]string(nil), t.lines...)
}
