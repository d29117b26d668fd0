// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"slices"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

const (
	syncLimit    = 3 * time.Minute  // for an instance to confirm the whole state, counted from its last progress
	replaceLimit = 30 * time.Second // the same after Replace, because meanwhile no process of the mode applies updates
	maxTries     = 3                // to start a process, before its mode is cleaned up without it
)

// Plan returns the next steps, and when to plan again if nothing changes; a zero wake means
// never. The steps have different instances and may run concurrently.
func Plan(w Want, s State, now time.Time) (steps []Step, wake time.Time) {
	p := &planner{want: w, state: s, facts: s.Facts, now: now}
	for i := range s.Have {
		p.have = append(p.have, &s.Have[i])
	}
	p.plan()
	return p.steps, p.wake
}

type planner struct {
	want  Want
	state State
	facts Facts       // of state
	have  []*Instance // of state; not modified
	now   time.Time

	mode, build string // the goal; an empty build means any build
	fallback    bool   // the Want is refused, so the goal is the mode that served before

	to   *Instance // the instance of the goal; nil if there is none
	from *Instance // the instance of another mode that serves or served; nil if there is none

	steps []Step
	wake  time.Time
}

func (p *planner) plan() {
	p.setGoal()
	p.to = p.find(p.mode, p.build)
	p.from = p.servingOther()
	if s, refused := p.refuse(); refused {
		p.do(s)
		return
	}
	if !p.startServed() {
		p.bringUp()
	}
	p.removeOthers()
}

// setGoal sets the goal to the Want or, while the Want is refused, to what served before.
func (p *planner) setGoal() {
	p.mode, p.build = p.want.Mode, p.want.Build
	r := p.state.Refused(p.want, p.now)
	if r == nil {
		return
	}
	p.fallback = true
	p.mode, p.build = p.facts.Served, ""
	if r.Mode == p.facts.Served {
		p.build = r.Former
	}
	if p.now.Before(r.Next) {
		p.wakeAt(r.Next)
	}
}

// Refused returns the refusal of w while what served before is the goal instead, that is, until
// w may be retried and the instance that failed is removed. It returns nil if w is the goal.
func (s *State) Refused(w Want, now time.Time) *Refusal {
	r := s.Facts.Refused
	if !r.Refuses(w) || s.Facts.Served == "" {
		return nil
	}
	serves := slices.ContainsFunc(s.Have, func(i Instance) bool { return i.serves() })
	leaves := slices.ContainsFunc(s.Have, func(i Instance) bool { return i.Refused && i.Mode == r.Mode && i.Build == r.Build && !i.serves() })
	if r.Next.IsZero() || now.Before(r.Next) || serves && leaves {
		return r
	}
	return nil
}

// Refuses reports whether r refuses w. The retry may be due already.
func (r *Refusal) Refuses(w Want) bool {
	return r != nil && r.Mode == w.Mode && r.Build == w.Build && r.Number == w.Number
}

// find returns the most useful instance of a mode and build, without those that are being
// removed; nil if there is none. If a build was refused after it had replaced another one, its
// instance is not reused for that build: the build gets a new instance.
func (p *planner) find(mode, build string) (best *Instance) {
	for _, i := range p.have {
		if i.Mode == mode && (build == "" || i.Build == build) && !i.isBeingRemoved() && !(i.Refused && i.Former != "" && build != "") && (best == nil || i.usefulness() >= best.usefulness()) {
			best = i
		}
	}
	return best
}

// isBeingRemoved reports whether the instance is being removed, so that it cannot serve any more.
func (i *Instance) isBeingRemoved() bool { return i.Clearing || i.Doing == Stop }

// usefulness orders instances for find: serving ones, then ones that served when last seen, then ones that are up.
func (i *Instance) usefulness() int {
	switch {
	case i.serves():
		return 3
	case i.Served:
		return 2
	case i.Up:
		return 1
	}
	return 0
}

// servingOther returns the instance of another mode that serves, or that served last; nil if there is none.
func (p *planner) servingOther() (best *Instance) {
	for _, i := range p.have {
		if i.Mode != p.mode && (i.Served || i.Mode == p.facts.Served) && !i.isBeingRemoved() && (best == nil || i.usefulness() > best.usefulness()) {
			best = i
		}
	}
	return best
}

// twin returns another instance of the same mode, or nil. Instances that have yielded do not
// count.
func (p *planner) twin(of *Instance) *Instance {
	at := slices.IndexFunc(p.have, func(i *Instance) bool {
		return i != of && i.Mode == of.Mode && !i.isBeingRemoved() && i.Role != sdk.Yielded
	})
	if at < 0 {
		return nil
	}
	return p.have[at]
}

// refuse returns the step that gives up the Want, if the Want failed and something else can
// serve.
func (p *planner) refuse() (Step, bool) {
	to, from := p.to, p.from
	if p.fallback || to == nil || to.Doing != 0 {
		return Step{}, false
	}
	replaces := to.Mode == p.facts.Served && (to.Former != "" || p.twin(to) != nil)
	comes := to.Mode != p.facts.Served && !to.Alone && from != nil && from.Mode == p.facts.Served
	if !replaces && !comes {
		return Step{}, false
	}
	s := Step{Do: Refuse, On: to.ID, Next: p.now.Add(p.facts.Refused.pause(p.want))}
	if to.Former != "" { // each try ends the serving process and delays updates
		s.Next = time.Time{}
	}
	switch {
	case to.Proved == No && !to.Alone:
		s.Why, s.Next = "connections through it fail", time.Time{}
	case p.want.DryRun && to.Role != sdk.Active && (to.Verified == Yes || to.Verified == Cannot || replaces && to.Up): // a replacement cannot be verified, because the rules in the kernel are from the former process
		s.Why, s.Next = ByDryRun, time.Time{}
	case to.Verified == No:
		s.Why = "the kernel does not have the state that was sent"
	case to.Err != nil:
		s.Why = "it failed"
	case p.overdue(to):
		s.Why = "the dataplane does not confirm updates"
	default:
		return Step{}, false
	}
	if to.Err != nil {
		s.Why = to.Err.Error()
	}
	return s, true
}

// ByDryRun is the Why of the Refusal after a successful dry run.
const ByDryRun = "dry run: it can serve all that is served now"

const (
	firstPause = 2 * time.Second // before a retry; doubled with each consecutive failure,
	lastPause  = 5 * time.Minute // up to this maximum
)

// pause returns how long w waits before its retry. r is the previous refusal.
func (r *Refusal) pause(w Want) time.Duration {
	if !r.Refuses(w) {
		return firstPause
	}
	return backoff(firstPause, lastPause, r.Tries+1)
}

// afterRemoval returns r after the instance that failed was removed. The pause starts at that time.
func (r *Refusal) afterRemoval(i *Instance, now time.Time) *Refusal {
	if r == nil || r.Mode != i.Mode || r.Build != i.Build || r.Next.IsZero() {
		return r
	}
	next := *r
	if after := now.Add(backoff(firstPause, lastPause, r.Tries)); after.After(r.Next) {
		next.Next = after
	}
	return &next
}

// overdue reports whether an instance has taken too long to confirm the whole state. If not, it
// schedules the next Plan for the end of the limit.
func (p *planner) overdue(i *Instance) bool {
	if !i.Up || i.Synced {
		return false
	}
	limit := syncLimit
	if i.Former != "" {
		limit = replaceLimit
	}
	return p.isOver(i.Since.Add(limit))
}

// startServed starts the mode that served under the previous host before anything else. It
// returns false once the mode serves or has failed.
func (p *planner) startServed() bool {
	if p.facts.Served == "" || p.facts.Served == p.mode || p.to.serves() || p.from.serves() {
		return false
	}
	served := p.find(p.facts.Served, "")
	switch {
	case served == nil && p.isBusy(p.facts.Served):
		return true
	case served == nil:
		p.start(p.facts.Served)
		return true
	case !served.Up:
		p.restart(served)
		return served.Err == nil
	case p.overdue(served):
		return false
	case served.Role == sdk.Draining && p.to != nil && p.to.Role == sdk.Active: // the cut was successful, and only the process of the goal is away
		return false
	}
	p.activate(served)
	return served.Err == nil
}

// isBusy reports whether an instance of a mode is being removed.
func (p *planner) isBusy(mode string) bool {
	return slices.ContainsFunc(p.have, func(i *Instance) bool { return i.Mode == mode && i.isBeingRemoved() })
}

// bringUp brings the goal closer to serving.
func (p *planner) bringUp() {
	to := p.to
	former := p.find(p.mode, "")
	switch {
	case to != nil && to.Doing == 0 && !to.Up:
		p.restart(to)
	case to != nil:
		p.activate(to)
	case former == nil && !p.isBusy(p.mode):
		p.start(p.mode)
	case former == nil || former.Doing != 0:
	case former.External: // it gets new options in a new session
		p.do(Step{Do: Start, On: former.ID})
	case !former.Up || !p.mayServe(former):
		p.do(Step{Do: Stop, On: former.ID})
	case p.twin(former) != nil: // at most two processes per mode
		if twin := p.twin(former); twin.Doing == 0 {
			p.do(Step{Do: Stop, On: twin.ID})
		}
	default: // start it beside the former process, which keeps serving if the new one fails
		p.do(Step{Do: Start, Mode: p.mode})
	}
}

// mayServe reports whether an instance serves, or may serve through its rules because no other
// instance does.
func (p *planner) mayServe(i *Instance) bool { return i.Served || p.serving() == nil }

// start starts the first instance of a mode. In Standby a mode receives no packets, so rules
// that the mode has in the kernel stop serving. So start uses Standby only while another mode
// serves.
func (p *planner) start(mode string) {
	s := Step{Do: Start, Mode: mode}
	switch serving := p.serving(); {
	case serving == nil && (mode == p.mode || mode == p.facts.Served):
		if s.Role = sdk.Active; p.isMoving() {
			return
		}
	case serving == nil, serving.Mode == mode, slices.Contains(p.facts.Left, mode):
	default:
		s.Role = sdk.Standby
	}
	p.do(s)
}

// restart starts the process of an instance again when the restart is due.
func (p *planner) restart(i *Instance) {
	if i.Doing != 0 || !p.isDue(i) {
		return
	}
	s := Step{Do: Start, On: i.ID}
	if twin := p.twin(i); (i == p.to || i == p.from && i.Mode == p.facts.Served) && p.serving() == nil && (twin == nil || !twin.Up && twin.Doing == 0) {
		if s.Role = sdk.Active; p.isMoving() {
			return
		}
	}
	p.do(s)
}

// serving returns the instance that serves in the view of this host, and that of the goal if
// there are several; nil if there is none.
func (p *planner) serving() *Instance {
	for _, i := range append([]*Instance{p.to}, p.have...) {
		if i.serves() && !i.isBeingRemoved() && !i.Doing.takesTraffic() {
			return i
		}
	}
	return nil
}

// activate moves an instance that is up one step closer to serving.
func (p *planner) activate(i *Instance) {
	from, twin := p.from, p.twin(i)
	if i == from {
		from = nil
	}
	switch {
	case i.Doing != 0 || !i.Up:
	case twin != nil && i.Role != sdk.Active: // the twin holds the lock or the sockets
		switch {
		case twin.Doing != 0:
		case twin.Up && p.mayServe(twin):
			p.moveTraffic(Step{Do: Replace, On: i.ID, With: twin.ID})
		default:
			p.do(Step{Do: Stop, On: twin.ID})
		}
	case !i.Synced && i.Role != sdk.Yielded: // a yielded instance is not sent updates
		p.overdue(i) // only to schedule the next Plan, where refuse checks it
	case i.Role == sdk.Active:
		p.prove(i)
	case i.Role != sdk.Yielded && i.Proved != Yes && i.Shown != sdk.Active && (i.Verified == Unknown || i.Verified == No):
		if p.isDue(i) {
			p.do(Step{Do: Verify, On: i.ID})
		}
	case p.want.DryRun && !p.fallback && from != nil && from.Served:
	case from != nil && from.Served:
		if from.Doing == 0 {
			p.moveTraffic(Step{Do: Cut, On: i.ID, With: from.ID})
		}
	case p.isDue(i):
		p.moveTraffic(Step{Do: Promote, On: i.ID})
	}
}

// prove plans a proof of the serving instance if a decision depends on it.
func (p *planner) prove(i *Instance) {
	undecided := i.Former != "" || i.Mode != p.facts.Served
	removes := slices.ContainsFunc(p.have, func(o *Instance) bool { return o != i && !o.wasNeverUp() }) ||
		slices.ContainsFunc(p.facts.Left, func(mode string) bool {
			return !slices.ContainsFunc(p.have, func(o *Instance) bool { return o.Mode == mode && o.wasNeverUp() })
		})
	if i.Former != "" && i.Verified == Unknown {
		p.do(Step{Do: Verify, On: i.ID})
		return
	}
	if (undecided || removes && (i.Proved == Unknown || i.Proved == No)) && p.isDue(i) { // on No it continues to serve, unless that is a reason to refuse it
		p.moveTraffic(Step{Do: Prove, On: i.ID})
	}
}

// wasNeverUp reports whether an instance has never been up, so there is nothing to clean up.
func (i *Instance) wasNeverUp() bool { return i.New && !i.Up }

// moveTraffic plans a step unless another step that moves traffic is running or planned.
func (p *planner) moveTraffic(s Step) {
	if !p.isMoving() {
		p.do(s)
	}
}

// isMoving reports whether a step that moves traffic is running or planned.
func (p *planner) isMoving() bool {
	return slices.ContainsFunc(p.have, func(i *Instance) bool { return i.Doing.movesTraffic() }) ||
		slices.ContainsFunc(p.steps, func(s Step) bool { return s.Do.movesTraffic() })
}

// removeOthers drains and cleans up the instances that neither serve nor are wanted.
func (p *planner) removeOthers() {
	keeper := p.serving()
	if keeper == nil {
		return
	}
	isRefused := func(mode string) bool { return p.facts.Refused.Refuses(p.want) && p.facts.Refused.Mode == mode }
	settled := keeper == p.to && keeper.Mode == p.facts.Served && keeper.Former == ""
	for _, i := range p.have {
		switch proved := keeper.Proved == Yes || keeper.Proved == Cannot || isRefused(i.Mode); {
		case i == keeper || i == p.to || i.Doing != 0:
		case i.wasNeverUp():
			p.do(Step{Do: Stop, On: i.ID})
		case i.Clearing:
			p.cleanUp(i)
		case i.Mode == keeper.Mode && settled, i.Mode != keeper.Mode && p.find(i.Mode, "") != i: // the rules in the kernel belong to the other instance of its mode
			if !i.Up || i.Role != sdk.Yielded || p.isDrained(i) {
				p.do(Step{Do: Stop, On: i.ID})
			}
		case i.Role == sdk.Standby && i.Mode != keeper.Mode && i.Mode != p.facts.Served: // it has never served
			p.cleanUp(i)
		case i.Busy && i.Mode != keeper.Mode && i.Mode != p.facts.Served: // the rules belong to the process that holds the lock
			p.cleanUp(i)
		case settled && i.Up && i.Synced && i.Role == 0 && i.Shown == sdk.Draining: // the kernel shows it draining already, so no traffic is lost
			p.remove(i)
		case settled && proved:
			p.remove(i)
		}
	}
	if settled && !p.fallback {
		p.startLeftModes()
	}
}

// isDrained reports whether the connections of a draining instance have ended, or its drain
// time is over.
func (p *planner) isDrained(i *Instance) bool {
	return i.Flows == 0 || !i.Drained.IsZero() && p.isOver(i.Drained.Add(p.want.Drain))
}

// remove moves an instance that served one step closer to its removal.
func (p *planner) remove(i *Instance) {
	switch {
	case !i.Up && i.Failures >= maxTries:
		p.cleanUp(i)
	case !i.Up:
		p.restart(i)
	case !i.Synced && !p.isOver(i.Since.Add(syncLimit)): // it does not know its connections yet
	case i.Role != sdk.Draining:
		if p.isDue(i) {
			p.do(Step{Do: Drain, On: i.ID})
		}
	case p.isDrained(i):
		p.cleanUp(i)
	}
}

// cleanUp cleans up an instance, once no other process of its mode can write the rules again.
func (p *planner) cleanUp(i *Instance) {
	alone := !slices.ContainsFunc(p.have, func(o *Instance) bool { return o != i && o.Mode == i.Mode })
	if alone && p.isDue(i) {
		p.do(Step{Do: Cleanup, On: i.ID})
	}
}

// startLeftModes starts an instance for each mode in Facts.Left, to clean it up. It keeps the role
// that the kernel shows.
func (p *planner) startLeftModes() {
	for _, mode := range p.facts.Left {
		if mode != p.mode && !slices.ContainsFunc(p.have, func(i *Instance) bool { return i.Mode == mode }) {
			p.do(Step{Do: Start, Mode: mode})
		}
	}
}

// do plans a step, unless one is already planned for one of its instances.
func (p *planner) do(s Step) {
	taken := func(id ID) bool {
		return id != 0 && slices.ContainsFunc(p.steps, func(o Step) bool { return o.On == id || o.With == id })
	}
	if !taken(s.On) && !taken(s.With) {
		p.steps = append(p.steps, s)
	}
}

// isDue reports whether an instance may retry.
func (p *planner) isDue(i *Instance) bool { return i.Next.IsZero() || p.isOver(i.Next) }

// isOver reports whether t has passed. If not, it schedules the next Plan for t.
func (p *planner) isOver(t time.Time) bool {
	if !p.now.Before(t) {
		return true
	}
	p.wakeAt(t)
	return false
}

func (p *planner) wakeAt(t time.Time) {
	if !t.IsZero() && (p.wake.IsZero() || t.Before(p.wake)) {
		p.wake = t
	}
}
