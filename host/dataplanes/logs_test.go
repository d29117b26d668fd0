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
	b := new(logBuffer)
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

// TestLogFlood: the host's log limits the lines of a plugin, and reports dropped ones. The plugin's own
// log has the last lines.
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
