// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/sdk/wire"
)

// A pluginLog receives the log lines of all processes of a plugin. It keeps the last ones for `pointsman plugin logs` and
// passes lines to the host's log at a limited rate. It is safe for concurrent use.
type pluginLog struct {
	plugin string
	log    hclog.Logger
	buffer *logBuffer

	mu    sync.Mutex // guards limit
	limit logLimit
}

func newPluginLog(plugin string, log hclog.Logger) *pluginLog {
	return &pluginLog{plugin: plugin, log: log, buffer: newLogBuffer()}
}

// line takes one line.
func (p *pluginLog) line(l wire.LogLine) {
	p.buffer.add(admin.LogLine{Time: l.Time, Level: l.Level.String(), Message: l.String()})
	p.mu.Lock()
	pass, left := p.limit.line(time.Now())
	p.mu.Unlock()
	if left > 0 {
		p.log.Warn("plugin log rate limited", "plugin", p.plugin, "lines", left, "try", "pointsman plugin logs "+p.plugin)
	}
	if !pass {
		return
	}
	args := make([]any, 0, 2*len(l.Attrs)+4)
	args = append(args, "plugin", p.plugin)
	for _, a := range l.Attrs {
		args = append(args, a.Key, a.Value.String())
	}
	p.log.Log(levelOf(l.Level), l.Message, args...)
}

// dropped returns how many lines were not passed to the host's log.
func (p *pluginLog) dropped() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.limit.dropped
}

func levelOf(l slog.Level) hclog.Level {
	switch {
	case l < slog.LevelInfo:
		return hclog.Debug
	case l < slog.LevelWarn:
		return hclog.Info
	case l < slog.LevelError:
		return hclog.Warn
	}
	return hclog.Error
}

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

// Of a plugin's log the host's own log takes so many lines at once, and so many in a
// second from then on. `pointsman plugin logs` has the last ones nevertheless.
const (
	logBurst = 500
	logRate  = 20 // lines in a second

	// logReminder is how often the log says that lines are left out.
	logReminder = 10 * time.Second
)

// A logLimit decides which lines of a plugin's log go into the host's. The zero value has
// seen none.
type logLimit struct {
	spent   float64 // of the burst
	seen    time.Time
	left    uint64    // lines left out since the log last said so
	shown   time.Time // when the log last said that lines are left out
	dropped uint64    // lines left out, in all
}

// line counts one more line. It goes into the log if pass is true; and before it the log is to
// say how many lines were left, unless that is zero.
func (l *logLimit) line(now time.Time) (pass bool, left uint64) {
	if !l.seen.IsZero() {
		l.spent = max(0, l.spent-logRate*now.Sub(l.seen).Seconds())
	}
	l.seen = now
	if pass = l.spent+1 <= logBurst; pass {
		l.spent++
	} else {
		l.left++
		l.dropped++
	}
	if l.left > 0 && now.Sub(l.shown) >= logReminder {
		left = l.left
		l.left, l.shown = 0, now
	}
	return pass, left
}
