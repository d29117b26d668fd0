// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pointsman/pointsman/host/launch"
	"github.com/pointsman/pointsman/sdk"
)

// modelDataplane returns a dataplane of the model's mode a.
func modelDataplane(t *testing.T) (*dataplane, modelKernel) {
	t.Helper()
	m := newMachine(t, 0)
	p := idle("a")
	p.plugin = launch.Plugin{Name: "a", Path: filepath.Join(m.dir, launch.Prefix+"a"), StateDir: filepath.Join(m.dir, "state/a")}
	p.host.Tracker.Synced()
	t.Cleanup(func() { p.stop(errNotNeeded) })
	return p, m.kernel
}

// await runs a step of a swap, which must succeed soon.
func await(t *testing.T, step func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := step(ctx); err != nil {
		t.Fatal(err)
	}
}

// TestHandover runs the operations of a swap on a dataplane with a process.
func TestHandover(t *testing.T) {
	t.Parallel()
	p, kernel := modelDataplane(t)
	await(t, func(ctx context.Context) error { return p.open(ctx, sdk.Standby, nil) })
	await(t, func(ctx context.Context) error { return p.until(ctx, "is filled", p.filled) })
	if o, up := p.observed(); !up || !o.Synced || o.Role != sdk.Standby || !p.readyInStandby() {
		t.Errorf("in Standby the observation is %+v, up %t", o, up)
	}
	await(t, p.Hold)
	await(t, func(ctx context.Context) error { return p.setRole(ctx, sdk.Active) })
	p.Release()
	if verified, err := p.verify(t.Context()); !verified || err != nil {
		t.Errorf("verified: %t, %v", verified, err)
	}
	if v, err := p.vitals(t.Context()); v.Flows != 0 || err != nil {
		t.Errorf("%d flows, %v", v.Flows, err)
	}
	await(t, p.Cleanup)
	if s, err := kernel.read(); len(s) != 0 || err != nil {
		t.Errorf("after Cleanup the kernel has %v, %v", s, err)
	}
	if !p.isOver() || p.remote() != nil {
		t.Error("its process continues to run")
	}
	if _, err := p.verify(expired(t)); err == nil || !strings.Contains(err.Error(), "wait until a has confirmed the whole state") {
		t.Errorf("verify without a process: %v", err)
	}
	if err := p.setRole(t.Context(), sdk.Active); !errors.Is(err, errNoProcess) {
		t.Errorf("a role without a process: %v", err)
	}
	if err := p.retire(t.Context(), sdk.Draining); err != nil {
		t.Errorf("retire without a process: %v", err)
	}
}

// expired returns a context whose deadline has passed.
func expired(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 0)
	t.Cleanup(cancel)
	return ctx
}
