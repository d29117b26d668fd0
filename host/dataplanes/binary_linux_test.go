// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	corev1 "k8s.io/api/core/v1"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/config"
	"github.com/pointsman/pointsman/host/feed"
	"github.com/pointsman/pointsman/host/launch"
	"github.com/pointsman/pointsman/host/report"
	"github.com/pointsman/pointsman/host/track"
	"github.com/pointsman/pointsman/test/eventually"
)

// TestBadBinary: if a new binary crashes or hangs, in Configure or in its first update, the former binary
// continues, and applies updates. Rules stay all the time, and status says what happened.
func TestBadBinary(t *testing.T) {
	for _, fault := range []string{"crashes at Configure", "hangs at Configure", "crashes at Sync", "hangs at Sync"} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, 0)
			m.write("mode", "a")
			set, tracker := inProcess(t, m)
			tracker.SetService(clusterService("one", netip.MustParseAddr("172.30.0.1"), corev1.ProtocolTCP))
			m.serves("one")
			before := set.Serving()

			m.replace("a", fault)
			replaced := time.Now()
			if said, err := set.Restart("a"); err != nil {
				t.Fatal(said, err)
			}
			eventually.TrueWithin(t, 2*time.Minute, "status says that the new binary failed", func() bool {
				last := set.LastSwap()
				return last != nil && last.Error != "" && set.UnderWay() == nil
			})
			tracker.SetService(clusterService("two", netip.MustParseAddr("172.30.0.2"), corev1.ProtocolTCP))
			m.serves("one", "two")
			t.Logf("an update is served %s after the binary was replaced: %s", time.Since(replaced).Round(time.Millisecond), set.LastSwap().Error)
			now := set.Serving()
			if same := now.PID == before.PID; same != (fault == "crashes at Configure" || fault == "hangs at Configure") {
				t.Errorf("before it served by pid %d, now by %d", before.PID, now.PID)
			}
			if !set.serving().isReplaced() {
				t.Error("the binary that is there does not count as another than the one that runs")
			}
			m.held()
		})
	}
}

// inProcess runs a host of the model in this process, with no Service yet.
func inProcess(t *testing.T, m *machine) (*Set, *track.Tracker) {
	tracker := track.New(nil)
	tracker.Synced()
	settings := modelConfig(m.dir)
	log := hclog.NewNullLogger()
	set := New(Settings{
		Begun: settings, Now: func() *config.Host { return settings }, NodeName: "node", Tracker: tracker, Log: log,
		Applied: func(feed.Acked) {}, Refused: func() {},
		Reports: report.New(time.Now, func(e report.Event) { m.did("%s: %s", e.Reason, e.Message) }),
	})
	if err := set.Begin(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = set.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	return set, tracker
}

// replace replaces a plugin's binary by another file with a fault, as a package manager does.
func (m *machine) replace(mode, fault string) {
	m.Helper()
	path := filepath.Join(m.dir, launch.Prefix+mode)
	data, err := os.ReadFile(path)
	syscall.ForkLock.RLock() // no process that starts now inherits the file, which could not be executed then
	err = errors.Join(err, os.WriteFile(path+".new", data, 0o700))
	syscall.ForkLock.RUnlock()
	info, stated := os.Stat(path + ".new")
	if err = errors.Join(err, stated); err != nil {
		m.Fatal(err)
	}
	m.write("kernel/fault", fmt.Sprintf("%d %s", info.Sys().(*syscall.Stat_t).Ino, fault))
	if err := os.Rename(path+".new", path); err != nil {
		m.Fatal(err)
	}
}

// serves waits until the kernel serves these Services.
func (m *machine) serves(names ...string) {
	m.Helper()
	m.until(fmt.Sprintf("serves %q", names), func(s kernelState) bool {
		for _, name := range names {
			if !s.reachable()["shop/"+name+"/tcp4"] {
				return false
			}
		}
		return true
	})
}

// TestDryRunOfTheSameMode starts another process of the serving mode, configures it, and ends it.
func TestDryRunOfTheSameMode(t *testing.T) {
	t.Parallel()
	m := newMachine(t, 0)
	m.write("mode", "a")
	set, tracker := inProcess(t, m)
	tracker.SetService(clusterService("one", netip.MustParseAddr("172.30.0.1"), corev1.ProtocolTCP))
	m.serves("one")
	eventually.True(t, "it serves", func() bool { return set.serves(set.serving()) })
	before := set.Serving()
	if _, err := set.SwapTo(admin.SwapAsk{To: "a", DryRun: true}); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "the dry run has ended", func() bool {
		m := set.Show()
		return m.Swap == nil && m.Last != nil && m.Last.DryRun && m.Last.Error == ""
	})
	if now := set.Serving(); now.PID != before.PID || len(set.all()) != 1 {
		t.Errorf("pid %d serves, and before it was %d; %d run", now.PID, before.PID, len(set.all()))
	}
	m.held()
}

// TestRestart restarts a plugin. Its rules keep serving, and the next process is Active and applies updates.
func TestRestart(t *testing.T) {
	t.Parallel()
	m := newMachine(t, 0)
	m.write("mode", "a")
	set, tracker := inProcess(t, m)
	tracker.SetService(clusterService("one", netip.MustParseAddr("172.30.0.1"), corev1.ProtocolTCP))
	m.serves("one")
	eventually.True(t, "it serves", func() bool { return set.serves(set.serving()) })
	before := set.Serving()
	if said, err := set.Restart("a"); err != nil {
		t.Fatal(said, err)
	}
	eventually.True(t, "another process is active", func() bool {
		now := set.Serving()
		return now.PID != 0 && now.PID != before.PID && now.Role == "active"
	})
	tracker.SetService(clusterService("two", netip.MustParseAddr("172.30.0.2"), corev1.ProtocolTCP))
	m.serves("one", "two")
	m.held()
}
