// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"context"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/pointsman/pointsman/host/feed"
	"github.com/pointsman/pointsman/host/supervise"
	"github.com/pointsman/pointsman/host/track"
	"github.com/pointsman/pointsman/sdk"
)

// modelDataplane is one of the model's mode a, with a process of its own that runs.
func modelDataplane(t *testing.T) (*dataplane, modelKernel) {
	t.Helper()
	m := newMachine(t, 0)
	p := idle("a")
	p.run(supervise.Plugin{Name: "a", Path: filepath.Join(m.dir, supervise.Prefix+"a"), StateDir: filepath.Join(m.dir, "state/a")})
	p.periods = periods{gap: time.Millisecond, retry: time.Minute}
	p.tracker.Synced()
	p.start(t.Context())
	t.Cleanup(p.process.stop)
	return p, m.kernel
}

// await waits for a step of a swap, which is to come soon.
func await(t *testing.T, step func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := step(ctx); err != nil {
		t.Fatal(err)
	}
}

// TestSwapSide takes a dataplane through what a swap asks of it, with a process of its own.
func TestSwapSide(t *testing.T) {
	t.Parallel()
	p, kernel := modelDataplane(t)
	member := swapSide{p}
	p.mu.Lock()
	p.want = sdk.Standby
	p.mu.Unlock()
	await(t, member.comeUp)
	await(t, member.Filled)
	if p.serves() || !p.synced() || member.ReadyInStandby() != true {
		t.Errorf("in Standby it serves: %t, and is synced: %t", p.serves(), p.synced())
	}
	await(t, member.Hold)
	await(t, func(ctx context.Context) error { return member.SetRole(ctx, sdk.Active) })
	member.Release()
	await(t, member.Serving)
	if verified, err := member.Verify(t.Context()); !verified || err != nil {
		t.Errorf("verified: %t, %v", verified, err)
	}
	if n, err := member.Flows(t.Context()); n != 0 || err != nil {
		t.Errorf("%d flows, %v", n, err)
	}
	if entries, err := member.ExportAffinity(t.Context()); len(entries) != 0 || err != nil {
		t.Errorf("of one that keeps no affinity: %v, %v", entries, err)
	}
	if err := member.ImportAffinity(t.Context(), nil); err != nil {
		t.Error(err)
	}
	p.refill()
	await(t, member.Filled)
	await(t, member.Cleanup)
	if s, err := kernel.read(); len(s) != 0 || err != nil {
		t.Errorf("after Cleanup the kernel has %v, %v", s, err)
	}
	if !p.process.over() || p.remote() != nil {
		t.Error("its process runs on")
	}
	if err := member.ImportAffinity(t.Context(), nil); err == nil {
		t.Error("a process that is gone took affinity over")
	}
	if _, err := member.Verify(expired(t)); err == nil || !strings.Contains(err.Error(), "wait until a has confirmed everything") {
		t.Errorf("verify without a process: %v", err)
	}
}

// expired is a context whose time is over.
func expired(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 0)
	t.Cleanup(cancel)
	return ctx
}

// TestRefillMakesAFullStale: a Full that was handed out before everything was asked for again does
// not make the session full, whichever of its acknowledgements comes first. A swap would take the
// dataplane for filled, and find that it has confirmed nothing.
func TestRefillMakesAFullStale(t *testing.T) {
	for name, refillFirst := range map[string]bool{"while it is under way": true, "once it was acknowledged": false} {
		t.Run(name, func(t *testing.T) {
			tracker := track.New(nil)
			tracker.SetService(clusterService("web", netip.MustParseAddr("172.30.0.1"), corev1.ProtocolTCP))
			tracker.Synced()
			p := idleOf("m", tracker)
			c := tracker.Cursor(sdk.Description{Name: "m", Features: []sdk.Feature{sdk.FeatureIPv4}})
			s := &session{dataplane: p, ctx: t.Context(), cursor: c, feed: feedOf(t, c)}
			p.session = s
			confirm := func(between func()) {
				u, _ := c.Next()
				if refillFirst {
					between()
				}
				c.Ack(u.To, nil)
				if !refillFirst {
					between()
				}
				s.acked(feed.Acked{Update: u})
			}
			confirm(p.refill)
			if p.synced() {
				t.Errorf("it is taken for filled, with %d Services confirmed", len(c.Confirmed()))
			}
			confirm(func() {})
			if !p.synced() {
				t.Error("it was sent everything, and is not taken for filled")
			}
		})
	}
}
