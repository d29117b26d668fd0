// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// A slow dataplane's Sync takes as long as it is given.
type slow struct {
	subject
	progress uint64
}

func (*slow) Sync(ctx context.Context, _ sdk.Update) (sdk.Result, error) {
	<-ctx.Done()
	return sdk.Result{}, ctx.Err()
}

func (s *slow) Report() sdk.Report { return sdk.Report{Progress: s.progress} }

// TestSilentSync: a Sync that runs on without a report is in the log within five seconds, once.
func TestSilentSync(t *testing.T) {
	for _, c := range []struct {
		name     string
		progress uint64
		runs     time.Duration
		lines    int
	}{
		{"silent", 0, 5 * time.Second, 1},
		{"silent for long", 0, time.Minute, 1},
		{"brief", 0, time.Second, 0},
		{"with a report", 1, time.Minute, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newServer(subjectDescription(), &slow{progress: c.progress})
			var logged strings.Builder
			s.log = slog.New(slog.NewTextHandler(&logged, nil))
			s.session.begin("one", nil)
			s.session.confirm()
			ctx, cancel := context.WithTimeout(t.Context(), c.runs)
			defer cancel()
			_, _ = s.sync(ctx, &incoming{session: "one", update: sdk.Update{Full: true, To: 1}})
			s.end()
			synctest.Wait() // until the log is written
			if got := strings.Count(logged.String(), "sdk.Reporter"); got != c.lines {
				t.Errorf("%s: the log has %s, want %d lines", c.name, &logged, c.lines)
			}
		})
	}
}
