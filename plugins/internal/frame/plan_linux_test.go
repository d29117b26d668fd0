// SPDX-License-Identifier: Apache-2.0

package frame

import (
	"context"
	"slices"
	"testing"

	"github.com/pointsman/pointsman/plugins/internal/sysctl"
	"github.com/pointsman/pointsman/sdk"
)

// TestPlan: a process that is only to plan says what the kernel has otherwise than an update asks
// for, and writes nothing, with or without a writer.
func TestPlan(t *testing.T) {
	t.Parallel()
	for _, beside := range []bool{true, false} {
		k, dir := newKernel(), t.TempDir()
		writer := begin(t, k, dir)
		writer.full(service(1, 1), service(2, 1), service(3, 1))
		writer.become(sdk.Active)
		if !beside {
			_ = writer.Close()
		}
		before := k.written()
		if got := planOf(t, k, dir, service(1, 1), service(2, 1), service(3, 1)); len(got.Steps)+len(got.Failed) > 0 {
			t.Errorf("beside a writer %t: of what is served, a plan says %+v", beside, got)
		}
		got := planOf(t, k, dir, service(1, 2), service(2, 1), service(4, 1))
		want := []string{"set " + service(1, 0).Name.String(), "set " + service(4, 0).Name.String(), "remove " + service(3, 0).Name.String()}
		if !slices.Equal(got.Steps, want) || !got.Planned {
			t.Errorf("beside a writer %t: %+v; want %q", beside, got, want)
		}
		if k.written() != before {
			t.Errorf("beside a writer %t: a plan wrote", beside)
		}
		k.expect(t, service(1, 1), service(2, 1), service(3, 1))
	}
}

// planOf asks another process on the kernel what it would write.
func planOf(t *testing.T, k *kernel, dir string, services ...sdk.Service) sdk.Result {
	t.Helper()
	d := New(inMemory(k), dir)
	t.Cleanup(func() { _ = d.Close() })
	r, err := d.Plan(t.Context(), sdk.Setup{}, sdk.Update{Full: true, To: 1, Node: &sdk.Node{Name: "n1"}, Set: services})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestPlanTakesNoLock: the process that plans is never the writer, not even when there is none.
func TestPlanTakesNoLock(t *testing.T) {
	t.Parallel()
	k, dir := newKernel(), t.TempDir()
	planner := New(inMemory(k), dir)
	defer planner.Close()
	if _, err := planner.Plan(t.Context(), sdk.Setup{}, sdk.Update{Full: true, To: 1, Node: &sdk.Node{}, Set: []sdk.Service{service(1, 1)}}); err != nil {
		t.Fatal(err)
	}
	if r := planner.Report(); r.Lock != sdk.LockReleased {
		t.Errorf("after a plan the lock is %s", r.Lock)
	}
	writer := begin(t, k, dir)
	if r := writer.full(service(2, 1)); r.Planned {
		t.Error("a process that began beside the planner is not the writer")
	}
	k.expect(t, service(2, 1))
}

// TestPlanRefuses: what a Sync would refuse, a plan names, and no update but a Full is planned.
func TestPlanRefuses(t *testing.T) {
	t.Parallel()
	k := newKernel()
	bad := service(7, 1)
	bad.Frontends[0].Policy = 99
	if r := planOf(t, k, t.TempDir(), bad, service(8, 1)); len(r.Failed) != 1 || r.Failed[0].Name != bad.Name || len(r.Steps) != 1 {
		t.Errorf("%+v", r)
	}
	d := New(inMemory(k), t.TempDir())
	defer d.Close()
	if _, err := d.Plan(t.Context(), sdk.Setup{}, sdk.Update{From: 1, To: 2}); err == nil {
		t.Error("a change was planned")
	}
}

// TestPlanOfSettings names a parameter of the kernel that would be set.
func TestPlanOfSettings(t *testing.T) {
	t.Parallel()
	const path = "/proc/self/comm" // a file of the kernel's that this process may write
	k := newKernel()
	mode := inMemory(k)
	open := mode.Open
	mode.Open = func(ctx context.Context, setup sdk.Setup, env Env) (Session[*sdk.Service], error) {
		s, err := open(ctx, setup, env)
		s.Settings = func(sdk.Node) sysctl.Settings {
			return sysctl.Settings{{Path: path, Value: "other"}, {Path: "/proc/nowhere", Value: "other"}}
		}
		return s, err
	}
	d := New(mode, t.TempDir())
	defer d.Close()
	r, err := d.Plan(t.Context(), sdk.Setup{}, sdk.Update{Full: true, To: 1, Node: &sdk.Node{}})
	if err != nil || len(r.Steps) != 1 || r.Steps[0][:len("set "+path)] != "set "+path {
		t.Errorf("%+v, %v", r, err)
	}
}
