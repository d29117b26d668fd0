// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"fmt"
	"testing"
)

// The last line of a dump of all goroutines is a register.
func TestAnExitSaysWhy(t *testing.T) {
	for _, c := range []struct {
		said []string
		want string
	}{
		{nil, "exited with code 2"},
		{[]string{"thinking", "no steam"}, "exited with code 2: no steam"},
		{[]string{"panic: no steam", "goroutine 1"}, "exited with code 2: panic: no steam"},
		{[]string{"SIGQUIT: quit", "goroutine 1", "gs     0x0"}, "exited with code 2: SIGQUIT: quit"},
	} {
		if got := (Exit{Code: 2, Stderr: c.said}).String(); got != c.want {
			t.Errorf("after %q it %q, want %q", c.said, got, c.want)
		}
	}
}

func TestTailKeepsAPanicsHead(t *testing.T) {
	tail := &tail{}
	for i := range 50 {
		tail.add(fmt.Sprint("line ", i))
	}
	if got := tail.text(); len(got) != tailLines || got[0] != "line 30" {
		t.Errorf("the tail is %q", got)
	}
	tail.add("panic: oh")
	for i := range 50 {
		tail.add(fmt.Sprint("frame ", i))
	}
	if got := tail.text(); len(got) != tailLines || got[0] != "panic: oh" || got[1] != "frame 0" {
		t.Errorf("the tail is %q", got)
	}
}

func TestTailKeepsADump(t *testing.T) {
	tail := &tail{}
	tail.add("before")
	tail.add("SIGQUIT: quit")
	for i := range dumpBytes {
		tail.add(fmt.Sprint("goroutine ", i))
	}
	size := 0
	got := tail.text()
	for _, line := range got {
		size += len(line) + 1
	}
	if got[0] != "SIGQUIT: quit" || len(got) < 1000 || size > 2*dumpBytes {
		t.Errorf("of a dump %d lines with %d bytes are kept, from %q", len(got), size, got[0])
	}
}
