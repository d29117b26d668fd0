// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/intent"
	"github.com/pointsman/pointsman/host/report"
	"github.com/pointsman/pointsman/host/supervise"
	"github.com/pointsman/pointsman/host/swap"
	"github.com/pointsman/pointsman/sdk"
)

// TestFirstRole: what may be all that serves keeps the role that the kernel shows.
func TestFirstRole(t *testing.T) {
	for name, c := range map[string]struct {
		plan swap.Plan
		want sdk.Role
	}{
		"to another mode":              {swap.Plan{}, sdk.Standby},
		"from one that does not serve": {swap.Plan{FromDown: true}, 0},
		"to another binary":            {swap.Plan{Same: true}, 0},
		"to another binary of a relay": {swap.Plan{Same: true, Overlap: true}, sdk.Standby},
	} {
		if got := firstRole(c.plan); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestRecord writes where a swap stands before it returns, and says so where it cannot.
func TestRecord(t *testing.T) {
	s := newFormerHost(t)
	set := s.next()
	m := swap.Machine{Stage: swap.Cutting, Plan: swap.Plan{From: "iptables", To: "userspace"}}
	if err := (swapHost{set}).Record(m); err != nil {
		t.Fatal(err)
	}
	if next := s.next(); next.runner.Machine() != m {
		t.Errorf("the next host finds %+v", next.runner.Machine())
	}
	file := modeFile(s.host)
	if err := errors.Join(os.Remove(file), os.Mkdir(file, 0o700)); err != nil {
		t.Fatal(err)
	}
	m.Stage = swap.Proving
	if err := (swapHost{set}).Record(m); err == nil || !strings.Contains(err.Error(), "where the swap stands") {
		t.Errorf("with no room: %v", err)
	}
}

// TestFinished makes the one that stays the only one, for this host and the next, and
// reports how the swap ended.
// TestUndone: of another binary the mode is the same, whichever of the two processes stays.
func TestUndone(t *testing.T) {
	o := swap.Outcome{Plan: swap.Plan{From: "userspace", To: "userspace", Same: true}, Stays: "userspace", Err: "no luck"}
	if got, want := undone(o, true), "userspace → userspace, another binary failed, and userspace stays because userspace could not be brought back: no luck"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	o.Undone = true
	if got, want := undone(o, true), "userspace → userspace, another binary, and userspace serves on: no luck"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestFinished(t *testing.T) {
	plan := swap.Plan{From: "iptables", To: "userspace"}
	down := plan
	down.FromDown = true
	for name, c := range map[string]struct {
		o      swap.Outcome
		serves bool // the one that stays
		reason string
		want   string
	}{
		"made":                      {swap.Outcome{Plan: plan, Stays: "userspace", Took: time.Second}, true, report.SwapDone, "iptables → userspace in 1s"},
		"undone":                    {swap.Outcome{Plan: plan, Stays: "iptables", Err: "no luck"}, true, report.SwapUndone, "iptables → userspace, and iptables serves on: no luck"},
		"undone, and none serves":   {swap.Outcome{Plan: down, Stays: "iptables", Err: "no luck"}, false, report.SwapUndone, "iptables does not serve either: no luck; what the kernel has stays as it is, and nothing updates it; it is tried again in 2s"},
		"could not be undone":       {swap.Outcome{Plan: plan, Stays: "userspace", Err: "no luck"}, true, report.SwapUndone, "iptables → userspace failed, and userspace stays because iptables could not be brought back: no luck"},
		"made, with something left": {swap.Outcome{Plan: plan, Stays: "userspace", Left: "a chain", Remains: "iptables"}, true, report.SwapNote, "not finished: a chain"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFormerHost(t)
			c.o.At = time.Now()
			set := s.next()
			iptables, userspace := set.main, set.newDataplane("userspace", "b")
			set.add(userspace)
			stays, leaves := iptables, userspace
			if c.o.Stays == "userspace" {
				stays, leaves = userspace, iptables
			}
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			leaves.start(ended)
			leaves.process.wait()
			stays.served = c.serves
			stays.process.start(ended)
			stays.process.wait()
			set.prefer("userspace")
			swapHost{set}.Finished(swapSide{stays}, swap.Machine{}, c.o)
			if set.serving() != stays || len(set.all()) != 1 {
				t.Errorf("%s serves, of %d", set.Mode(), len(set.all()))
			}
			if got := set.intent.Intent(); got.Serving != stays.name || got.Slot != stays.slot || got.Swap != nil {
				t.Errorf("noted: %+v", got.Saved)
			}
			if said := strings.Join(eventsOf(set, c.reason), "; "); !strings.Contains(said, c.want) {
				t.Errorf("said %q, want %q", said, c.want)
			}
		})
	}
}

// TestMoved reports each change of stage, and once why a swap is undone.
func TestMoved(t *testing.T) {
	set := newFormerHost(t).next()
	plan := swap.Plan{From: "iptables", To: "userspace"}
	forth := swap.Machine{Stage: swap.Proving, Plan: plan}
	back := swap.Machine{Stage: swap.Returning, Plan: plan, Undo: "no luck"}
	changed := set.changes.wait()
	swapHost{set}.Moved(swap.Machine{}, forth)
	<-changed
	swapHost{set}.Moved(forth, back)
	swapHost{set}.Moved(back, back)
	said := eventsOf(set, report.SwapStage)
	if len(said) != 3 || said[0] != "iptables → userspace: proving" || !strings.HasSuffix(said[1], ", to undo it: no luck") || strings.Contains(said[2], "undo") {
		t.Errorf("said %q", said)
	}
}

// TestProveUnproved goes on with a swap where no way to the canary can be demanded, and says
// so.
func TestProveUnproved(t *testing.T) {
	set := newFormerHost(t).next() // it knows no address of the node
	if err := (swapHost{set}).Prove(t.Context(), swapSide{set.main}, nil); err != nil {
		t.Error(err)
	}
	if said := eventsOf(set, report.SwapNote); len(said) != 1 || !strings.Contains(said[0], "unproved") {
		t.Errorf("said %q", said)
	}
}

// TestOpenFails: a plugin that does not come up is stopped, and forgotten.
func TestOpenFails(t *testing.T) {
	set := newFormerHost(t).next()
	set.life = t.Context()
	defer set.canary.End()
	d, err := swapHost{set}.Open(t.Context(), swap.Plan{From: "iptables", To: "userspace"})
	if d != nil || err == nil || !strings.Contains(err.Error(), "userspace is ") || len(set.all()) != 1 {
		t.Errorf("opened %v, %v; %d run", d, err, len(set.all()))
	}
}

// TestKeepActive has the one that the host goes on with be Active, but not while a swap
// changes roles.
func TestKeepActive(t *testing.T) {
	set := newFormerHost(t).next()
	set.main.want = sdk.Draining
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	set.keepActive(ctx, set.newDataplane("userspace", "")) // which serves no more
	if said := eventsOf(set, report.SwapNote); len(said) != 0 {
		t.Errorf("of one that leaves: %q", said)
	}
	set.keepActive(ctx, set.main)
	if said := eventsOf(set, report.SwapNote); set.main.want != sdk.Active || len(said) != 1 || !strings.HasPrefix(said[0], "promote: ") {
		t.Errorf("it is to be %s, and said %q", set.main.want, said)
	}
}

// TestNextBegins what the intent says: a change that is asked for, and what is left to clean
// up.
func TestNextBegins(t *testing.T) {
	s := newFormerHost(t)
	set := s.next()
	set.change(func(i intent.Intent) intent.Intent { return i.FileSays("userspace") })
	set.next(t.Context(), time.Now())
	if err := set.ask(admin.SwapAsk{To: "userspace"}, "a test"); !errors.Is(err, swap.ErrBusy) {
		t.Errorf("a change was not begun: %v", err)
	}
	s.write(modeFile(s.host), `{"serving":"iptables","left":["userspace"]}`)
	set = s.next()
	set.change(func(i intent.Intent) intent.Intent { return i.FileSays("iptables") })
	c := set.Tracker.Cursor(sdk.Description{Name: "iptables"})
	set.main.session, set.main.served = &session{dataplane: set.main, cursor: c, feed: feedOf(t, c), full: true}, true
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // the process that would clean up ends at once
	set.life = ctx
	set.next(ctx, time.Now())
	defer set.canary.End()
	other := set.besides()
	if other == nil || other.name != "userspace" || other.want != 0 {
		t.Fatalf("what is left of userspace is not cleaned up: %+v", set.all())
	}
	other.process.wait()
}

// TestOrphaned says what became of each process that nothing speaks of.
func TestOrphaned(t *testing.T) {
	for name, c := range map[string]struct {
		o     supervise.Orphan
		event report.Event
		want  string
	}{
		"ended":            {supervise.Orphan{}, report.Event{Reason: report.PluginStopped}, "it was ended"},
		"it does not end":  {supervise.Orphan{Err: errors.New("no luck")}, report.Event{Reason: report.PluginLeftAlone, Warning: true}, "it does not end: no luck"},
		"another host's":   {supervise.Orphan{Other: true, Alone: "its host lives"}, report.Event{Reason: report.PluginLeftAlone}, "in this network namespace, and is left alone: its host lives"},
		"another's binary": {supervise.Orphan{Alone: "another user's"}, report.Event{Reason: report.PluginLeftAlone, Warning: true}, "has this host's state directory, and is left alone: another user's"},
	} {
		c.o.Mark.Mode = "../x"
		e := orphaned(c.o)
		if e.Reason != c.event.Reason || e.Warning != c.event.Warning || e.Object != "" || !strings.Contains(e.Message, c.want) {
			t.Errorf("%s: %+v, want %+v with %q", name, e, c.event, c.want)
		}
	}
	known := supervise.Orphan{}
	known.Mark.Mode = "iptables"
	if e := orphaned(known); e.Object != "iptables" {
		t.Errorf("of a mode: %+v", e)
	}
}
