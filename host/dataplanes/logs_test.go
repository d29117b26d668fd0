// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/sdk/wire"
)

func TestLogBuffer(t *testing.T) {
	b := newLogBuffer()
	for i := range bufferLines + 5 {
		b.add(admin.LogLine{Message: fmt.Sprint(i)})
	}
	var first, last string
	n := 0
	err := b.read(t.Context(), false, func(l admin.LogLine) error {
		if n == 0 {
			first = l.Message
		}
		last = l.Message
		n++
		return nil
	})
	if err != nil || n != bufferLines || first != "5" || last != fmt.Sprint(bufferLines+4) {
		t.Errorf("%d lines from %s to %s, %v", n, first, last, err)
	}

	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	go b.add(admin.LogLine{Message: "later"})
	if err := b.read(ctx, true, func(l admin.LogLine) error {
		if l.Message == "later" {
			cancel()
		}
		return nil
	}); err != nil || !errors.Is(ctx.Err(), context.Canceled) {
		t.Errorf("following: %v, %v", err, ctx.Err())
	}
}

// TestLogLimit: a flood is cut to its burst and its rate, what is left out is counted and
// shown, and a plugin that talks as usual loses nothing.
func TestLogLimit(t *testing.T) {
	begin := time.Unix(1000, 0)
	for name, c := range map[string]struct {
		gap          time.Duration // between two lines
		lines        int
		least, most  int // that pass
		tells        int // at least
		remindersMax int
	}{
		"a line each second":      {time.Second, 3600, 3600, 3600, 0, 0},
		"a burst":                 {0, logBurst, logBurst, logBurst, 0, 0},
		"as fast as it may":       {time.Second / logRate, 10000, 10000, 10000, 0, 0},
		"6,600 a second, for 60s": {time.Second / 6600, 6600 * 60, logBurst + 59*logRate, logBurst + 61*logRate, 6, 7},
	} {
		t.Run(name, func(t *testing.T) {
			var l logLimit
			passed, shown, tells := 0, uint64(0), 0
			for i := range c.lines {
				pass, left := l.line(begin.Add(time.Duration(i) * c.gap))
				if pass {
					passed++
				}
				if left > 0 {
					shown += left
					tells++
				}
			}
			if passed < c.least || passed > c.most || passed+int(l.dropped) != c.lines {
				t.Errorf("%d of %d pass, %d are counted as left out; want %d to %d", passed, c.lines, l.dropped, c.least, c.most)
			}
			if tells < c.tells || tells > c.remindersMax || shown+l.left != l.dropped {
				t.Errorf("said %d times, of %d of %d", tells, shown, l.dropped)
			}
		})
	}
}

// TestLogFlood: the host's log stays readable under a plugin that floods it, says that lines
// are left out, and the plugin's own log has its last words.
func TestLogFlood(t *testing.T) {
	var log bytes.Buffer
	p := idle("iptables")
	p.logged = newPluginLog("iptables", hclog.New(&hclog.LoggerOptions{Output: &log, Level: hclog.Trace}))
	const flood = 20000
	for i := range flood {
		p.logged.line(wire.LogLine{Time: time.Now(), Message: fmt.Sprintf("line %d", i)})
	}
	lines := strings.Count(log.String(), "\n")
	if lines < logBurst || lines > logBurst+logRate*60 || !strings.Contains(log.String(), "plugin log rate limited") {
		t.Errorf("%d lines of %d are in the log, the last of them:\n%s", lines, flood, log.String()[max(0, log.Len()-500):])
	}
	if dropped := p.health().LogDropped; dropped < flood-uint64(lines) || dropped > flood {
		t.Errorf("%d are counted", dropped)
	}
	kept, _, _ := p.logged.buffer.since(0)
	if last := kept[len(kept)-1].Message; !strings.Contains(last, fmt.Sprint(flood-1)) {
		t.Errorf("the plugin's log ends with %q", last)
	}
}
