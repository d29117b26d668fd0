// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"context"
	"slices"
	"sync"

	"github.com/pointsman/pointsman/host/admin"
)

// bufferLines is how many lines of a plugin's log the host keeps.
const bufferLines = 1000

// A logBuffer keeps the last lines of a plugin's log, over its restarts, for
// whatever asks later. It is safe for concurrent use.
type logBuffer struct {
	mu    sync.Mutex // guards what follows
	lines []admin.LogLine
	first uint64        // the number of lines[0], counted from the beginning
	more  chan struct{} // closed with the next line
}

func newLogBuffer() *logBuffer { return &logBuffer{more: make(chan struct{})} }

func (b *logBuffer) add(l admin.LogLine) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines = append(b.lines, l)
	if over := len(b.lines) - bufferLines; over > 0 {
		b.lines = slices.Delete(b.lines, 0, over)
		b.first += uint64(over)
	}
	close(b.more)
	b.more = make(chan struct{})
}

// since returns what there is from line number n on, the number that comes next, and
// what is closed when there is more.
func (b *logBuffer) since(n uint64) ([]admin.LogLine, uint64, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	next := b.first + uint64(len(b.lines))
	from := min(max(n, b.first), next)
	return slices.Clone(b.lines[from-b.first:]), next, b.more
}

// read calls line for each line there is, and with follow for each that comes,
// until ctx ends.
func (b *logBuffer) read(ctx context.Context, follow bool, line func(admin.LogLine) error) error {
	var n uint64
	for {
		lines, next, more := b.since(n)
		for _, l := range lines {
			if err := line(l); err != nil {
				return err
			}
		}
		n = next
		if !follow {
			return nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return nil
		}
	}
}
