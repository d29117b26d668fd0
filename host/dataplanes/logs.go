// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/time/rate"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/sdk/wire"
)

// A pluginLog receives the log lines of all processes of a plugin. It keeps the last ones for `pointsman plugin logs` and
// passes lines to the host's log at a limited rate. It is safe for concurrent use.
type pluginLog struct {
	plugin  string
	log     hclog.Logger
	buffer  logBuffer
	limit   *rate.Limiter
	remind  rate.Sometimes
	dropped atomic.Uint64 // lines that were not passed to the host's log
}

func newPluginLog(plugin string, log hclog.Logger) *pluginLog {
	return &pluginLog{plugin: plugin, log: log, limit: rate.NewLimiter(logRate, logBurst), remind: rate.Sometimes{Interval: logReminder}}
}

// line adds one line.
func (p *pluginLog) line(l wire.LogLine) {
	p.buffer.add(admin.LogLine{Time: l.Time, Level: l.Level.String(), Message: l.String()})
	if !p.limit.Allow() {
		dropped := p.dropped.Add(1)
		p.remind.Do(func() {
			p.log.Warn("plugin log rate limited", "plugin", p.plugin, "dropped", dropped, "try", "pointsman plugin logs "+p.plugin)
		})
		return
	}
	args := make([]any, 0, 2*len(l.Attrs)+4)
	args = append(args, "plugin", p.plugin)
	for _, a := range l.Attrs {
		args = append(args, a.Key, a.Value.String())
	}
	level := hclog.Info + hclog.Level(min(max(l.Level>>2, -1), 2)) // the levels of slog are four apart
	p.log.Log(level, l.Message, args...)
}

// bufferLines is the number of lines of a plugin's log that the host keeps.
const bufferLines = 1000

// A logBuffer keeps the last lines of a plugin's log across restarts. It is safe for concurrent
// use; the zero value is ready to use.
type logBuffer struct {
	mu    sync.Mutex // guards the fields below
	lines []admin.LogLine
	first uint64   // the number of lines[0], counted from the start
	more  notifier // notifies of each line
}

func (b *logBuffer) add(l admin.LogLine) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines = append(b.lines, l)
	if over := len(b.lines) - bufferLines; over > 0 {
		b.lines = slices.Delete(b.lines, 0, over)
		b.first += uint64(over)
	}
	b.more.notify()
}

// since returns the lines from number n on, the number of the next line, and a channel that is
// closed when there are more.
func (b *logBuffer) since(n uint64) ([]admin.LogLine, uint64, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	next := b.first + uint64(len(b.lines))
	from := min(max(n, b.first), next)
	return slices.Clone(b.lines[from-b.first:]), next, b.more.wait()
}

// read calls line for each stored line and, with follow, for each new line until ctx ends.
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

// Rate limit for a plugin's lines in the host's log. `pointsman plugin logs` shows dropped
// lines nevertheless, if they are among the last ones.
const (
	logBurst = 500
	logRate  = 20 // lines per second

	// logReminder is the interval at which the log reports dropped lines.
	logReminder = 10 * time.Second
)
