// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"fmt"
	"testing"
)

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
