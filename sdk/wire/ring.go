// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"io"
	"log"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/pointsman/pointsman/internal/lines"
)

// The log ring's bounds. A host that reads along loses nothing; one that was away
// finds this much.
const (
	ringLines = 4096
	ringBytes = 1 << 20
	ringBatch = 64 // lines taken at once
)

// A ring keeps the latest log lines. Writing never waits for a reader.
type ring struct {
	mu      sync.Mutex // guards what is below
	lines   []LogLine  // line n is at n modulo the length
	limit   int        // of bytes
	bytes   int
	first   uint64        // the oldest line kept
	end     uint64        // the next line to come
	read    uint64        // the next line that no reader has seen
	dropped uint64        // lines that no reader has seen and none will
	more    chan struct{} // closed when a line comes
}

func newRing(lines, bytes int) *ring {
	return &ring{lines: make([]LogLine, lines), limit: bytes, more: make(chan struct{})}
}

func (r *ring) add(line LogLine) {
	r.mu.Lock()
	defer r.mu.Unlock()
	size := line.size()
	for r.first < r.end && (r.end-r.first == uint64(len(r.lines)) || r.bytes+size > r.limit) {
		r.drop()
	}
	line.number = r.end + 1
	r.lines[r.end%uint64(len(r.lines))] = line
	r.bytes += size
	r.end++
	close(r.more)
	r.more = make(chan struct{})
}

// drop forgets the oldest line. The lock is held.
func (r *ring) drop() {
	slot := &r.lines[r.first%uint64(len(r.lines))]
	r.bytes -= slot.size()
	*slot = LogLine{}
	if r.first >= r.read {
		r.dropped++
	}
	r.first++
}

// size returns about what the line costs in memory.
func (l LogLine) size() int {
	n := len(l.Message) + 64
	for _, a := range l.Attrs {
		n += len(a.Key) + len(a.Value.String()) + 32
	}
	return n
}

// lost returns how many lines were dropped before they were read.
func (r *ring) lost() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.dropped
}

// reader reads on after the line with that number; zero: from the oldest.
func (r *ring) reader(after uint64) *ringReader {
	return &ringReader{ring: r, at: after, old: after > 0}
}

// A ringReader is one reader's place in a ring.
type ringReader struct {
	ring *ring
	at   uint64
	old  bool // it has read before, so a gap is a loss
}

// next returns at most limit lines, and where there are none a channel that is
// closed when one comes.
func (rd *ringReader) next(limit int) ([]LogLine, <-chan struct{}) {
	r := rd.ring
	r.mu.Lock()
	defer r.mu.Unlock()
	var missed uint64
	if rd.at < r.first {
		missed, rd.at = r.first-rd.at, r.first
	}
	if !rd.old {
		missed, rd.old = r.dropped, true
	}
	rd.at = min(rd.at, r.end)
	n := min(uint64(limit), r.end-rd.at)
	lines := make([]LogLine, 0, n)
	for range n {
		lines = append(lines, r.lines[rd.at%uint64(len(r.lines))])
		rd.at++
	}
	if n > 0 {
		lines[0].Dropped = missed
	}
	r.read = max(r.read, rd.at)
	return lines, r.more
}

// An output leads what a plugin prints into its log ring. Without it, a line on
// stderr would kill the plugin once its host is gone, and 64 KiB of fmt.Println
// would block it for good while no host reads: go-plugin's pipes have no other
// reader.
type output struct {
	ring           *ring
	stdout, stderr *os.File // as the process began
}

func newOutput(r *ring) *output { return &output{ring: r, stdout: os.Stdout, stderr: os.Stderr} }

// capture takes stdout and stderr over. It runs once, after go-plugin has replaced them
// by its own pipes.
func (o *output) capture() {
	theirs := []*os.File{os.Stdout, os.Stderr}
	stdout, outErr := o.pipe("stdout", slog.LevelInfo)
	stderr, errErr := o.pipe("stderr", slog.LevelWarn)
	if err := errors.Join(outErr, errErr); err != nil {
		o.report(err)
		return
	}
	os.Stdout, os.Stderr = stdout, stderr
	last, err := redirect(stdout, stderr)
	if err != nil {
		o.report(err)
	}
	if last != nil && log.Writer() == o.stderr {
		log.SetOutput(io.MultiWriter(stderr, last)) // log.Fatal leaves the pipe's reader no time
	}
	for _, f := range theirs {
		if f != o.stdout && f != o.stderr {
			f.Close() // a write that waits for room in it returns
		}
	}
}

// pipe makes a pipe that ends in the ring, drained as long as the process lives.
func (o *output) pipe(stream string, level slog.Level) (*os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	attrs := []slog.Attr{slog.String("stream", stream)}
	go lines.Each(r, func(line string) {
		o.ring.add(LogLine{Time: time.Now(), Level: level, Message: line, Attrs: attrs})
	})
	return w, nil
}

func (o *output) report(err error) {
	o.ring.add(LogLine{Time: time.Now(), Level: slog.LevelError, Message: "what this plugin prints is not in its log", Attrs: []slog.Attr{slog.String("err", err.Error())}})
}
