// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/userspace/relay"
	"github.com/pointsman/pointsman/sdk"
)

// An outcome is what carrying out edits came to.
type outcome struct {
	failed  []sdk.Failure
	planned []string // and not done, in a role that writes nothing
}

// A turn is the work of one call, or of a part of it.
type turn struct {
	edits   map[sdk.Name]edit
	before  map[sdk.Name][]claim // what each claimed
	were    map[sdk.Name]was     // and what it was, once that was changed
	touched map[place]bool
	failed  map[sdk.Name]error
}

// carryOut makes sockets and services follow the edits, and at further places
// whatever the table says. A Service that cannot have all its places, or a line of
// which the kernel refuses, keeps what it had. An error means that nobody was told
// of any.
func (d *Dataplane) carryOut(ctx context.Context, edits []edit, further ...place) (outcome, error) {
	var all outcome
	refused, err := iptables.Sift(names(edits), func(some []sdk.Name) ([]sdk.Name, error) {
		done, suspects, err := d.take(ctx, of(edits, some), further)
		all.failed = append(all.failed, done.failed...)
		all.planned = done.planned
		return suspects, err
	})
	for name, err := range refused {
		all.failed = append(all.failed, sdk.Failure{Name: name, Err: err})
	}
	slices.SortFunc(all.failed, func(a, b sdk.Failure) int { return a.Name.Compare(b.Name) })
	return all, err
}

// take takes one turn. If the context ends before rules are written, it changed
// nothing; if the kernel refuses a line, it is taken back, and suspects are the
// Services to which the line may belong.
func (d *Dataplane) take(ctx context.Context, edits []edit, further []place) (done outcome, suspects []sdk.Name, err error) {
	t := d.begin(edits, append(slices.Clone(further), d.undone...))
	for {
		steps := d.plan(t)
		bad, err := d.prepare(ctx, steps)
		if err != nil {
			t.failed = nil
			for name := range t.before {
				d.table.restore(name, t.before[name])
			}
			for _, verb := range []verb{give, closeDown} {
				d.settle(d.plan(t), verb)
			}
			return outcome{}, nil, err
		}
		if len(bad) == 0 {
			return d.finish(ctx, t, steps)
		}
		for r, err := range bad {
			d.giveUp(t, r.place, r.name, err)
		}
	}
}

// finish makes everyone see what was prepared. When the kernel's rules could not
// follow for another reason than one line, nothing is taken back, and the next turn
// begins there.
func (d *Dataplane) finish(ctx context.Context, t *turn, steps []step) (done outcome, suspects []sdk.Name, err error) {
	d.commit(t, steps)
	err = d.lay(ctx, t.touched)
	d.undone = nil
	switch refused := new(iptables.LineError); {
	case err == nil:
		d.settle(steps, closeDown)
	case errors.As(err, &refused) && ctx.Err() == nil:
		suspects = d.suspects(t, refused)
		d.takeBack(t)
		return outcome{}, suspects, err
	default:
		d.undone = slices.Collect(maps.Keys(t.touched))
	}
	return outcome{failed: t.failures(), planned: d.unwritten(steps)}, nil, err
}

// begin writes the edits into the table.
func (d *Dataplane) begin(edits []edit, further []place) *turn {
	t := &turn{
		edits:   make(map[sdk.Name]edit),
		before:  make(map[sdk.Name][]claim),
		were:    make(map[sdk.Name]was),
		touched: make(map[place]bool),
		failed:  make(map[sdk.Name]error),
	}
	for _, e := range edits {
		if e.err != nil {
			t.failed[e.name] = e.err
			continue
		}
		d.gotOn()
		t.edits[e.name] = e
		before := d.table.put(e.name, e.claims)
		if _, again := t.before[e.name]; !again {
			t.before[e.name] = before
		}
		for _, c := range slices.Concat(before, e.claims) {
			t.touched[c.place] = true
		}
	}
	for _, p := range further {
		t.touched[p] = true
	}
	for p := range t.touched {
		delete(d.owed, p)
	}
	return t
}

// plan is what t's places need now.
func (d *Dataplane) plan(t *turn) []step {
	return plan(slices.Collect(maps.Keys(t.touched)), &d.table, func(p place) (holder, bool) {
		d.gotOn()
		s := d.sockets[p]
		if s == nil {
			return holder{}, false
		}
		return holderOf(s), true
	})
}

// A refused claim could not be opened.
type refused struct {
	place place
	name  sdk.Name
}

// prepare opens what is to be opened, for nobody yet. In Standby it finds out
// whether it could, but for what is in use: whoever serves there now may be the
// one whom we are to succeed.
func (d *Dataplane) prepare(ctx context.Context, steps []step) (map[refused]error, error) {
	bad := make(map[refused]error)
	for _, s := range steps {
		p := s.claim.place
		if _, hopeless := d.owed[p]; hopeless || s.verb != open {
			continue
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		d.gotOn()
		var err error
		switch d.acts() {
		case opens:
			err = d.open(ctx, p)
		case probes:
			if err = relay.Probe(ctx, p.protocol, p.addr); errors.Is(err, relay.ErrInUse) {
				err = nil
			}
		}
		if err != nil {
			bad[refused{p, s.claim.name}] = err
		}
	}
	return bad, nil
}

func (d *Dataplane) open(ctx context.Context, p place) error {
	if s := d.retired[p]; s != nil {
		delete(d.retired, p)
		if s.Resume() {
			d.sockets[p] = s
			return nil
		}
	}
	s, err := d.openNew(ctx, p)
	if err == nil {
		d.sockets[p] = s
	}
	return err
}

// giveUp on p: the Service keeps what it had. One that no update names, or an
// address that has just gone, is tried again later.
func (d *Dataplane) giveUp(t *turn, p place, name sdk.Name, err error) {
	e, edited := t.edits[name]
	c, _ := d.table.owner(p)
	if !edited || e.ours || c.every() && notOurs(err) {
		d.owe(p, name, explain(p, err))
		return
	}
	if _, already := t.failed[name]; already {
		d.owe(p, name, explain(p, err)) // it had this place, and lost it in this turn
		return
	}
	t.failed[name] = explain(p, err)
	d.table.restore(name, t.before[name])
}

func (d *Dataplane) owe(p place, name sdk.Name, err error) {
	d.owed[p] = err
	d.status.log.Load().Warn("cannot listen; trying again", "at", p.String(), "service", name, "err", err)
}

// commit publishes the values, and then does all that cannot fail.
func (d *Dataplane) commit(t *turn, steps []step) {
	for name, e := range t.edits {
		if t.failed[name] != nil {
			continue
		}
		d.gotOn()
		t.were[name] = d.as(name)
		if e.value != nil {
			d.publish(*e.value)
		}
	}
	d.settle(steps, give)
	for name, e := range t.edits {
		switch {
		case t.failed[name] != nil:
		case e.value == nil:
			delete(d.services, name)
			delete(d.roaming, name)
		default:
			d.tellSockets(name)
		}
		d.stakeHealth(name)
		d.gotOn()
	}
	d.stake(t.touched)
}

// publish makes svc what connections see from now on.
func (d *Dataplane) publish(svc sdk.Service) {
	s := d.services[svc.Name]
	if s == nil {
		s = relay.NewService(svc)
		d.services[svc.Name] = s
	} else {
		s.Set(svc)
	}
	s.ImportAffinity(d.seeds[svc.Name], time.Now())
	delete(d.seeds, svc.Name)
	d.noteRoaming(svc)
}

func (d *Dataplane) noteRoaming(svc sdk.Service) {
	delete(d.roaming, svc.Name)
	if slices.ContainsFunc(svc.Frontends, func(f sdk.Frontend) bool { return f.Addr.Addr().IsUnspecified() }) {
		d.roaming[svc.Name] = true
	}
}

// gotOn has Report tell that the call gets on. With many Services on a busy node also
// what only computes takes seconds.
func (d *Dataplane) gotOn() { d.status.step() }

// settle gives, or closes.
func (d *Dataplane) settle(steps []step, verb verb) {
	for _, st := range steps {
		s := d.sockets[st.claim.place]
		if s == nil || st.verb != verb {
			continue
		}
		switch st.verb {
		case give:
			s.Serve(&relay.Target{Service: d.services[st.claim.name], Frontend: st.claim.frontend})
		case closeDown:
			d.release(st.claim.place, s)
		}
		d.gotOn()
	}
}

// release lets go of s when what it has begun is over.
func (d *Dataplane) release(p place, s relay.Socket) {
	delete(d.sockets, p)
	switch {
	case s.Target() == nil:
		s.Close()
	case d.role == sdk.Yielded && p.protocol == sdk.UDP:
		s.Close() // a successor shares the port, and half of the datagrams would come to us
	case s.Drain():
		d.retired[p] = s
	}
}

// tellSockets that the endpoints of a Service have changed.
func (d *Dataplane) tellSockets(name sdk.Name) {
	if name.Protocol != sdk.UDP {
		return
	}
	for _, c := range d.table.claims[name] {
		for _, s := range []relay.Socket{d.sockets[c.place], d.retired[c.place]} {
			if s != nil && holderOf(s).name == name {
				s.EndpointsChanged()
			}
		}
	}
}

// everyPlace that anyone claims.
func (d *Dataplane) everyPlace() []place { return slices.Collect(maps.Keys(d.table.places)) }

// unwritten are the steps that another process must do, because we have yielded.
func (d *Dataplane) unwritten(steps []step) []string {
	if d.acts() == opens || d.role != sdk.Yielded && d.way == nil {
		return nil
	}
	lines := d.plannedRules()
	for _, s := range steps {
		lines = append(lines, s.String())
	}
	return lines
}

func (t *turn) failures() []sdk.Failure {
	var all []sdk.Failure
	for name, err := range t.failed {
		all = append(all, sdk.Failure{Name: name, Err: err})
	}
	return all
}
