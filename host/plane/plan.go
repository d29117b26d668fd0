// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"slices"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

const (
	syncLimit    = 3 * time.Minute  // for an instance to confirm everything, without progress
	replaceLimit = 30 * time.Second // the same where no other process of its mode follows updates meanwhile
	tries        = 3                // of starting a process, before its mode is cleaned up without one
)

// Plan returns what to do next, and when to plan again if nothing changes before; zero: then nothing is due. The steps
// are of different instances, and may be done at the same time.
func Plan(w Want, f Facts, have []Instance, now time.Time) (steps []Step, wake time.Time) {
	p := &planner{want: w, facts: f, now: now}
	for i := range have {
		p.have = append(p.have, &have[i])
	}
	p.plan()
	return p.steps, p.wake
}

type planner struct {
	want  Want
	facts Facts
	have  []*Instance
	now   time.Time

	mode, build string // the goal; an empty build is any
	fallback    bool   // the goal is what served before what is wanted was refused

	to   *Instance // of the goal; nil: there is none
	from *Instance // of another mode, that serves or did; nil: there is none

	steps []Step
	wake  time.Time
}

func (p *planner) plan() {
	p.setGoal()
	p.to = p.find(p.mode, p.build)
	p.from = p.other()
	if s, refused := p.refuse(); refused {
		p.do(s)
		return
	}
	if !p.startServed() {
		p.bring()
	}
	p.removeOthers()
}

// setGoal chooses what is wanted, or what served before while that is refused.
func (p *planner) setGoal() {
	p.mode, p.build = p.want.Mode, p.want.Build
	r := Refused(p.want, p.facts, p.have, p.now)
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

// Refused returns the refusal of w for as long as what served before is the goal instead: until it is due again, and
// what had failed is removed; nil: w is the goal.
func Refused(w Want, f Facts, have []*Instance, now time.Time) *Refusal {
	r := f.Refused
	if !r.Of(w) || f.Served == "" {
		return nil
	}
	serves := slices.ContainsFunc(have, (*Instance).serves)
	leaves := slices.ContainsFunc(have, func(i *Instance) bool { return i.Refused && i.Mode == r.Mode && i.Build == r.Build && !i.serves() })
	if r.Next.IsZero() || now.Before(r.Next) || serves && leaves {
		return r
	}
	return nil
}

// Of reports whether it is w that failed, which may be due again.
func (r *Refusal) Of(w Want) bool {
	return r != nil && r.Mode == w.Mode && r.Build == w.Build && r.Number == w.Number
}

// find returns the instance of a mode and a build that does most; nil: there is none, or it is being removed.
// One that was refused once it had taken the place of another is not used for a build again: it is started anew.
func (p *planner) find(mode, build string) (best *Instance) {
	for _, i := range p.have {
		if i.Mode == mode && (build == "" || i.Build == build) && !i.isGoing() && !(i.Refused && i.Former != "" && build != "") && (best == nil || i.does() >= best.does()) {
			best = i
		}
	}
	return best
}

// isGoing reports whether it is too late to serve by it.
func (i *Instance) isGoing() bool { return i.Clearing || i.Doing == Stop }

func (i *Instance) does() int {
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

// other returns the instance of another mode that serves, or that did last; nil: there is none.
func (p *planner) other() (best *Instance) {
	for _, i := range p.have {
		if i.Mode != p.mode && (i.Served || i.Mode == p.facts.Served) && !i.isGoing() && (best == nil || i.does() > best.does()) {
			best = i
		}
	}
	return best
}

// twin returns another instance of the same mode; nil: there is none. One that has yielded is none any more.
func (p *planner) twin(of *Instance) *Instance {
	at := slices.IndexFunc(p.have, func(i *Instance) bool {
		return i != of && i.Mode == of.Mode && !i.isGoing() && i.Role != sdk.Yielded
	})
	if at < 0 {
		return nil
	}
	return p.have[at]
}

// refuse returns the step that gives up what is wanted, if that failed and something else can serve.
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
	if to.Former != "" { // each try ends the process that serves, and updates wait meanwhile
		s.Next = time.Time{}
	}
	switch {
	case to.Proved == No && !to.Alone:
		s.Why, s.Next = "connections do not find their way by it", time.Time{}
	case p.want.DryRun && to.Role != sdk.Active && (to.Verified == Yes || to.Verified == Cannot || replaces && to.Up): // of one that replaces it the kernel is not its own
		s.Why, s.Next = ByDryRun, time.Time{}
	case to.Verified == No:
		s.Why = "the kernel does not have what it was sent"
	case to.Err != nil:
		s.Why = "it failed"
	case p.overdue(to):
		s.Why = "it does not confirm what it is sent"
	default:
		return Step{}, false
	}
	if to.Err != nil {
		s.Why = to.Err.Error()
	}
	return s, true
}

// ByDryRun is why a dry run in which nothing went wrong is undone.
const ByDryRun = "dry run: it can serve all that is served now"

const (
	firstPause = 2 * time.Second // before what failed is tried again; doubled with each failure in a row,
	lastPause  = 5 * time.Minute // up to this
)

// pause returns how long w waits after it is refused, with r being the refusal before.
func (r *Refusal) pause(w Want) time.Duration {
	if !r.Of(w) {
		return firstPause
	}
	return backoff(firstPause, lastPause, r.Tries+1)
}

// removed returns r once an instance that had failed is removed: the pause begins then.
func (r *Refusal) removed(i *Instance, now time.Time) *Refusal {
	if r == nil || r.Mode != i.Mode || r.Build != i.Build || r.Next.IsZero() {
		return r
	}
	next := *r
	if after := now.Add(backoff(firstPause, lastPause, r.Tries)); after.After(r.Next) {
		next.Next = after
	}
	return &next
}

// overdue reports whether an instance has taken too long to confirm everything, and else has Plan look again then.
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

// startServed brings back the mode that serves, where a host before served by it, before anything else. It returns
// false once that is done or has failed.
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
		p.again(served)
		return served.Err == nil
	case p.overdue(served):
		return false
	case served.Role == sdk.Draining && p.to != nil && p.to.Role == sdk.Active: // the cut was made, and the goal's process is away
		return false
	}
	p.activate(served)
	return served.Err == nil
}

// isBusy reports whether an instance of a mode is on its way out.
func (p *planner) isBusy(mode string) bool {
	return slices.ContainsFunc(p.have, func(i *Instance) bool { return i.Mode == mode && i.isGoing() })
}

// bring makes the goal serve.
func (p *planner) bring() {
	to := p.to
	former := p.find(p.mode, "")
	switch {
	case to != nil && to.Doing == 0 && !to.Up:
		p.again(to)
	case to != nil:
		p.activate(to)
	case former == nil && !p.isBusy(p.mode):
		p.start(p.mode)
	case former == nil || former.Doing != 0:
	case former.External: // it is given its options in another session
		p.do(Step{Do: Start, On: former.ID})
	case !former.Up || !p.isOrMay(former):
		p.do(Step{Do: Stop, On: former.ID})
	case p.twin(former) != nil: // two are enough
		p.removeTwin(former)
	default: // nothing that the new process fails at changes what the former one does
		p.do(Step{Do: Start, Mode: p.mode})
	}
}

// removeTwin ends a process of the mode that serves which is neither that nor the goal.
func (p *planner) removeTwin(of *Instance) {
	if twin := p.twin(of); twin.Doing == 0 {
		p.do(Step{Do: Stop, On: twin.ID})
	}
}

// isOrMay reports whether an instance serves, or nothing else does and its rules may.
func (p *planner) isOrMay(i *Instance) bool { return i.Served || p.serving() == nil }

// start starts the first instance of a mode. In Standby it catches no packet, so whatever its mode has in the kernel no
// longer serves: that is right only where another mode does.
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

// again starts the process of an instance once more, when it is time.
func (p *planner) again(i *Instance) {
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

// serving returns the instance that serves in this host's own sight, and of several that of the goal; nil: none does.
func (p *planner) serving() *Instance {
	for _, i := range append([]*Instance{p.to}, p.have...) {
		if i.serves() && !i.isGoing() && !i.Doing.takesTraffic() {
			return i
		}
	}
	return nil
}

// activate takes an instance that is up one step nearer to serving.
func (p *planner) activate(i *Instance) {
	from, twin := p.from, p.twin(i)
	if i == from {
		from = nil
	}
	switch {
	case i.Doing != 0 || !i.Up:
	case twin != nil && i.Role != sdk.Active: // its lock, or its sockets, are with the other one
		switch {
		case twin.Doing != 0:
		case twin.Up && p.isOrMay(twin):
			p.moveTraffic(Step{Do: Replace, On: i.ID, With: twin.ID})
		default:
			p.do(Step{Do: Stop, On: twin.ID})
		}
	case !i.Synced && i.Role != sdk.Yielded: // that is sent nothing
		p.overdue(i) // refuse sees it
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

// prove plans the proof of the instance that serves, where something depends on it.
func (p *planner) prove(i *Instance) {
	undecided := i.Former != "" || i.Mode != p.facts.Served
	removes := slices.ContainsFunc(p.have, func(o *Instance) bool { return o != i && !o.isUnborn() }) ||
		slices.ContainsFunc(p.facts.Left, func(mode string) bool {
			return !slices.ContainsFunc(p.have, func(o *Instance) bool { return o.Mode == mode && o.isUnborn() })
		})
	if i.Former != "" && i.Verified == Unknown {
		p.do(Step{Do: Verify, On: i.ID})
		return
	}
	if (undecided || removes && (i.Proved == Unknown || i.Proved == No)) && p.isDue(i) { // if No is no reason to refuse it, it serves on
		p.moveTraffic(Step{Do: Prove, On: i.ID})
	}
}

// isUnborn reports whether an instance has never been up, so that there is nothing to remove.
func (i *Instance) isUnborn() bool { return i.New && !i.Up }

// moveTraffic plans a step unless another one that moves traffic is under way.
func (p *planner) moveTraffic(s Step) {
	if !p.isMoving() {
		p.do(s)
	}
}

// isMoving reports whether a step that moves traffic is under way or planned.
func (p *planner) isMoving() bool {
	return slices.ContainsFunc(p.have, func(i *Instance) bool { return i.Doing.movesTraffic() }) ||
		slices.ContainsFunc(p.steps, func(s Step) bool { return s.Do.movesTraffic() })
}

// removeOthers drains and cleans up what does not serve and is not wanted.
func (p *planner) removeOthers() {
	for _, i := range p.have {
		if i.Cleaned && i.Doing == 0 {
			p.do(Step{Do: Stop, On: i.ID})
		}
	}
	keeper := p.serving()
	if keeper == nil {
		return
	}
	settled := keeper == p.to && keeper.Mode == p.facts.Served && keeper.Former == ""
	for _, i := range p.have {
		switch proved := keeper.Proved == Yes || keeper.Proved == Cannot || p.isRefused(i); {
		case i == keeper || i == p.to || i.Doing != 0 || i.Cleaned:
		case i.isUnborn():
			p.do(Step{Do: Stop, On: i.ID})
		case i.Clearing:
			p.cleanUp(i)
		case i.Mode == keeper.Mode && settled, i.Mode != keeper.Mode && p.find(i.Mode, "") != i: // what is in the kernel is the other one's
			if !i.Up || i.Role != sdk.Yielded || p.isDrained(i) {
				p.do(Step{Do: Stop, On: i.ID})
			}
		case i.Role == sdk.Standby && i.Mode != keeper.Mode && i.Mode != p.facts.Served: // it never served
			p.cleanUp(i)
		case i.Busy && i.Mode != keeper.Mode && i.Mode != p.facts.Served: // what there is is the other one's
			p.cleanUp(i)
		case settled && i.Up && i.Synced && i.Role == 0 && i.Shown == sdk.Draining: // which takes nothing from it
			p.remove(i)
		case settled && proved:
			p.remove(i)
		}
	}
	if settled && !p.fallback {
		p.startLeft()
	}
}

// isRefused reports whether an instance is of the mode that failed.
func (p *planner) isRefused(i *Instance) bool {
	r := p.facts.Refused
	return r.Of(p.want) && r.Mode == i.Mode
}

// isDrained reports whether the connections of an instance that drains have ended, or have had their time.
func (p *planner) isDrained(i *Instance) bool {
	return i.Flows == 0 || !i.Drained.IsZero() && p.isOver(i.Drained.Add(p.want.Drain))
}

// remove takes an instance that served one step nearer to its end.
func (p *planner) remove(i *Instance) {
	switch {
	case !i.Up && i.Failures >= tries:
		p.cleanUp(i)
	case !i.Up:
		p.again(i)
	case !i.Synced && !p.isOver(i.Since.Add(syncLimit)): // it cannot know its connections yet
	case i.Role != sdk.Draining:
		if p.isDue(i) {
			p.do(Step{Do: Drain, On: i.ID})
		}
	case p.isDrained(i):
		p.cleanUp(i)
	}
}

// cleanUp removes what a mode has in the kernel, once no other process can write that again.
func (p *planner) cleanUp(i *Instance) {
	alone := !slices.ContainsFunc(p.have, func(o *Instance) bool { return o != i && o.Mode == i.Mode })
	if alone && p.isDue(i) {
		p.do(Step{Do: Cleanup, On: i.ID})
	}
}

// startLeft starts an instance of a mode that may have rules in the kernel, to clean them up. It has the role that the
// kernel shows.
func (p *planner) startLeft() {
	for _, mode := range p.facts.Left {
		if mode != p.mode && !slices.ContainsFunc(p.have, func(i *Instance) bool { return i.Mode == mode }) {
			p.do(Step{Do: Start, Mode: mode})
		}
	}
}

// do plans a step, unless its instance has one already.
func (p *planner) do(s Step) {
	taken := func(id ID) bool {
		return id != 0 && slices.ContainsFunc(p.steps, func(o Step) bool { return o.On == id || o.With == id })
	}
	if !taken(s.On) && !taken(s.With) {
		p.steps = append(p.steps, s)
	}
}

// isDue reports whether an instance may try again what failed.
func (p *planner) isDue(i *Instance) bool { return i.Next.IsZero() || p.isOver(i.Next) }

// isOver reports whether t has come, and else has Plan look again then.
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
