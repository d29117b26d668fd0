// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// A world simulates a node: a kernel, the processes of one host, and the steps in progress.
type world struct {
	now    time.Time
	want   Want
	kernel map[string]sdk.Role // the role that each mode shows; a missing mode has no rules
	state  State
	doing  []doing
	trace  []string

	busy map[string]bool // modes of which another host's process has the writer's lock

	relayDied bool // a relay died, and nothing has served since, or steps continue that were planned before

	fail func(s Step, mode, build string) error // nil if nothing fails
}

// A doing is a step in progress.
type doing struct {
	Step
	err         error
	relayServed bool // it was planned while a relay served that has died since
}

// relays are modes that serve only while their process runs.
var relays = map[string]bool{"userspace": true, "apart-relay": true}

// apart are modes whose process something else runs. It outlives the host, and there is one per mode.
var apart = map[string]bool{"apart": true, "apart-relay": true}

var errFault = errors.New("fault")

func newWorld() *world {
	return &world{now: time.Unix(1_000_000, 0), kernel: make(map[string]sdk.Role), busy: make(map[string]bool), want: Want{Drain: time.Minute}}
}

// plan begins the steps of Plan, and returns when to plan again.
func (w *world) plan() (wake time.Time) {
	for {
		steps, wake := Plan(w.want, w.state, w.now)
		for _, s := range steps {
			w.begin(s)
		}
		if len(steps) == 0 || steps[0].Do != Refuse { // else there is another goal
			return wake
		}
	}
}

func (w *world) begin(s Step) {
	if s.Do == Refuse {
		w.note("%s %s: %s", s.Do, w.name(s.On), s.Why)
		w.state.Refuse(s, w.want, w.now)
		return
	}
	build := ""
	if i := w.state.instance(s.On); i != nil {
		build = i.Build
	}
	if s.Do == Start {
		mode := s.Mode
		if i := w.state.instance(s.On); i != nil {
			mode = i.Mode
		}
		build = w.buildOf(mode)
	}
	s = w.state.Begin(s, build, w.now)
	d := doing{Step: s}
	if w.fail != nil {
		d.err = w.fail(s, w.state.instance(s.On).Mode, build)
	}
	w.doing = append(w.doing, d)
	text := fmt.Sprintf("%s %s", s.Do, w.name(s.On))
	if s.With != 0 {
		text += " with " + w.name(s.With)
	}
	if s.Role != 0 {
		text += " as " + s.Role.String()
	}
	w.note("%s", text)
	w.check(s)
}

// buildOf returns the build that a host starts for a mode.
func (w *world) buildOf(mode string) string {
	if r := w.state.Refused(w.want, w.now); mode == w.want.Mode && r != nil && r.Former != "" {
		return r.Former
	}
	if mode == w.want.Mode {
		return w.want.Build
	}
	return ""
}

func (w *world) name(id ID) string {
	i := w.state.instance(id)
	if i == nil {
		return fmt.Sprint(int(id))
	}
	if i.Build != "" {
		return i.Mode + "/" + i.Build
	}
	return i.Mode
}

func (w *world) note(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf(format, args...))
}

// check checks that a step keeps invariants 1 and 2, and is the only step of its instances.
func (w *world) check(s Step) {
	on := w.state.instance(s.On)
	for _, d := range w.doing[:len(w.doing)-1] {
		if d.On == s.On || d.With == s.On || s.With != 0 && (d.On == s.With || d.With == s.With) {
			w.note("BROKEN: %s during %s", s, d.Step)
		}
	}
	if apart[on.Mode] && s.Do == Start && slices.ContainsFunc(w.state.Have, func(i Instance) bool { return i.ID != s.On && i.Mode == on.Mode }) {
		w.note("BROKEN: %s beside another session of its process", s)
	}
	takes := s.Do == Drain || s.Do == Cleanup || s.Do == Start && s.Role == sdk.Standby
	if takes && !slices.ContainsFunc(w.state.Have, func(i Instance) bool { return i.ID != s.On && i.serves() }) {
		w.note("BROKEN: %s while nothing else serves", s)
	}
	if s.Do == Promote && !on.DiesWithProcess && !(on.Synced && (on.Verified == Yes || on.Verified == Cannot || on.Proved == Yes || on.Shown == sdk.Active)) {
		w.note("BROKEN: %s before it is verified", s)
	}
}

// end ends the step that began as number n.
func (w *world) end(n int) {
	d := w.doing[n]
	w.doing = slices.Delete(w.doing, n, n+1)
	on := w.state.instance(d.On)
	if on == nil {
		return
	}
	o := Outcome{Err: d.err, Answer: Yes, DiesWithProcess: relays[on.Mode], External: apart[on.Mode]}
	if d.err != nil {
		o.Answer = No
	}
	if !on.Up && d.Do != Start && d.Do != Stop && d.Do != Cleanup { // its process ended meanwhile
		o.Err, o.Answer = errFault, Unknown
	}
	if d.err != nil || o.Err != nil {
		w.note("  %s %s failed", d.Do, w.name(d.On))
	}
	w.act(d, on, o.Err)
	w.state.End(d.Step, o, w.now)
	if d.Do == Start && o.Err == nil {
		w.show(w.state.instance(d.On))
	}
}

// act applies a step to the kernel.
func (w *world) act(d doing, on *Instance, err error) {
	with := w.state.instance(d.With)
	switch {
	case err != nil:
	case d.Do == Start && relays[on.Mode] && d.Role == sdk.Active:
		w.kernel[on.Mode] = sdk.Active
	case d.Do == Start && d.Role == sdk.Standby, d.Do == Start && w.kernel[on.Mode] == 0:
		w.kernel[on.Mode] = sdk.Standby
	case d.Do == Stop:
		w.relayDied = w.ends(on, false) || w.relayDied
	case d.Do == Cut, d.Do == Promote, d.Do == Replace:
		w.kernel[on.Mode] = sdk.Active
		if d.Do == Cut && with != nil && with.Up {
			w.kernel[with.Mode] = sdk.Draining
		}
	case d.Do == Drain:
		w.kernel[on.Mode] = sdk.Draining
	case d.Do == Cleanup:
		delete(w.kernel, on.Mode)
	}
}

// show reports the role that the kernel shows to an instance.
func (w *world) show(i *Instance) {
	if i != nil && i.Up {
		if i.Shown = w.kernel[i.Mode]; i.Shown == 0 {
			i.Shown = sdk.Absent
		}
	}
}

// sync lets an instance confirm the whole state.
func (w *world) sync(i *Instance) {
	w.show(i)
	w.state.Synced(i.ID)
}

// lose ends the process of an instance.
func (w *world) lose(i *Instance) {
	w.note("  %s is lost", w.name(i.ID))
	w.relayDied = w.ends(i, true) || w.relayDied
	w.state.Lost(i.ID, Loss{Err: errFault}, w.now)
}

// ends removes the state that ends with the process of an instance, and reports whether there was any.
func (w *world) ends(i *Instance, died bool) bool {
	another := slices.ContainsFunc(w.state.Have, func(o Instance) bool { return o.ID != i.ID && o.Mode == i.Mode && o.Up && o.Role == sdk.Active })
	if !relays[i.Mode] || another {
		return false
	}
	if apart[i.Mode] && !died { // the connection to it was closed
		return false
	}
	delete(w.kernel, i.Mode)
	for n := range w.doing {
		w.doing[n].relayServed = true
	}
	return true
}

// restart kills the host and starts the next one. Steps in progress were done if done returns true.
func (w *world) restart(done func() bool) {
	w.note("  the host is killed")
	for _, d := range w.doing {
		if on := w.state.instance(d.On); on != nil && d.err == nil && (on.Up || d.Do == Cleanup || d.Do == Start) && done() {
			w.act(d, on, nil)
		}
	}
	for mode := range relays {
		if apart[mode] {
			continue
		}
		w.relayDied = w.relayDied || w.kernel[mode] == sdk.Active
		delete(w.kernel, mode)
	}
	w.doing, w.state.Have = nil, nil
}

// run runs without faults until there is nothing to do. It returns false if that does not end, or once stop, which
// may be nil, returns true for a step that begins.
func (w *world) run(stop func(Step) bool) bool {
	for range 500 {
		n := len(w.doing)
		wake := w.plan()
		for _, d := range w.doing[n:] {
			if stop != nil && stop(d.Step) {
				return false
			}
		}
		switch {
		case len(w.doing) > 0:
			w.end(0)
		case w.syncNext():
		case w.drainNext():
		case !wake.IsZero() && wake.Sub(w.now) < 30*time.Minute:
			w.now = wake
		default:
			return true
		}
	}
	w.note("BROKEN: it does not settle")
	return false
}

func (w *world) syncNext() bool {
	for n := range w.state.Have {
		if i := &w.state.Have[n]; i.Up && !i.Synced && !w.waits(i) && i.Role != sdk.Yielded {
			w.sync(i)
			return true
		}
	}
	return false
}

// waits reports whether i has to wait, because another process of its mode has the writer's lock.
func (w *world) waits(i *Instance) bool {
	return w.busy[i.Mode] || slices.ContainsFunc(w.state.Have, func(o Instance) bool {
		return o.ID != i.ID && o.Mode == i.Mode && o.Up && o.Role != sdk.Yielded && i.Role != sdk.Active
	})
}

func (w *world) drainNext() bool {
	for n := range w.state.Have {
		if i := &w.state.Have[n]; i.Up && i.Flows < 0 && (i.Role == sdk.Draining || i.Role == sdk.Yielded) {
			i.Flows = 0
			return true
		}
	}
	return false
}

// String writes a step as the scripts in testdata do.
func (s Step) String() string {
	text := s.Do.String()
	if s.On != 0 {
		text += fmt.Sprintf(" %d", s.On)
	}
	if s.With != 0 {
		text += fmt.Sprintf(" with %d", s.With)
	}
	if s.Mode != "" {
		text += " " + s.Mode
	}
	if s.Role != 0 {
		text += " as " + s.Role.String()
	}
	if s.Why != "" {
		text += ": " + s.Why
	}
	return text
}
