// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"io"
	"log"
	"log/slog"
	"os"
	"time"

	"github.com/pointsman/pointsman/internal/lines"
)

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
	stdout, err := o.pipe("stdout", slog.LevelInfo)
	if err != nil {
		o.report(err)
		return
	}
	stderr, err := o.pipe("stderr", slog.LevelWarn)
	if err != nil {
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
