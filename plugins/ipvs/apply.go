// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"syscall"

	"github.com/pointsman/pointsman/plugins/internal/reconcile"
	"github.com/pointsman/pointsman/sdk"
)

// objects implements reconcile.Kernel for the sets, virtual servers and addresses of one family. It has no
// transactions. A change that the kernel already has is no error.
type objects struct {
	*family
	bound  map[netip.Addr]bool // our addresses on our device
	counts map[key]int         // number of members by the key of the set; number of virtual servers by key{kind: ofServer}

	// writeRules, if not nil, writes the rules that must exist before the first virtual server.
	writeRules func(context.Context) error
}

// List returns all our objects, and stores the other addresses of the node.
func (o *objects) List(ctx context.Context) (map[key]value, error) {
	seen, err := o.session.read(ctx)
	if err != nil {
		return nil, err
	}
	of := o.node.family
	o.setAddresses(seen.addrs)
	o.kubeProxySets = seen.sets[of].kubeProxySets
	all := seen.ours(of, o.session.options.ExcludeCIDRs)
	o.counts, o.bound = make(map[key]int), make(map[netip.Addr]bool)
	for k := range all {
		o.count(k, 1)
	}
	return all, nil
}

// count updates the counts after an entry was added (1) or removed (-1).
func (o *objects) count(k key, more int) {
	switch k.kind {
	case ofEntry:
		o.counts[key{kind: ofSet, entry: entry{set: k.entry.set}}] += more
	case ofServer:
		o.counts[key{kind: ofServer}] += more
	case ofAddress:
		if o.bound[k.entry.addr] = true; more < 0 {
			delete(o.bound, k.entry.addr)
		}
	}
}

// Apply writes a batch. Errors that concern a single virtual server are returned in refused, by its key.
func (o *objects) Apply(ctx context.Context, b reconcile.Batch[key, value]) (refused map[key]error, err error) {
	b.Phases = append(b.Phases, make([][]change, phases)...)
	if err := o.changeSets(ctx, b.Phases[makeSets], b.Phases[addEntries]); err != nil {
		return nil, err
	}
	if o.writeRules != nil {
		if err := o.writeRules(ctx); err != nil {
			return nil, err
		}
		o.writeRules = nil
	}
	if refused, err = o.changeServers(ctx, b.Phases[addServers]); err != nil {
		return refused, err
	}
	for _, step := range []func() error{
		func() error { return o.changeAddresses(ctx, b.Phases[addAddresses]) },
		func() error { return o.changeSets(ctx, nil, b.Phases[removeRegistered]) },
		func() error { _, err := o.changeServers(ctx, b.Phases[removeServers]); return err },
		func() error { return o.changeAddresses(ctx, b.Phases[removeAddresses]) },
		func() error { return o.changeSets(ctx, nil, b.Phases[removeEntries]) },
	} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	for _, phase := range b.Phases {
		for _, c := range phase {
			switch _, is := refused[c.Key]; {
			case is || c.Op == reconcile.Replace:
			case c.Op == reconcile.Add:
				o.count(c.Key, 1)
			default:
				o.count(c.Key, -1)
			}
		}
	}
	return refused, nil
}

func compareChanges(a, b change) int { return compareKeys(a.Key, b.Key) }

// maxSingle is the number of members up to which each is changed by a netlink message. For more it is cheaper
// to run ipset.
const maxSingle = 8

// changeSets creates sets, and adds members in the order of their sets or removes them in the reverse order.
func (o *objects) changeSets(ctx context.Context, made, entries []change) error {
	slices.SortFunc(entries, compareChanges)
	if len(entries) > 0 && entries[0].Op == reconcile.Remove {
		slices.Reverse(entries)
	}
	if len(made) == 0 && len(entries) <= maxSingle {
		for _, c := range entries {
			if err := o.changeEntry(c); err != nil {
				return err
			}
		}
		return nil
	}
	return o.kernel.Restore(ctx, restoreLines(o.node.family, made, entries))
}

func (o *objects) changeEntry(c change) error {
	if c.Op == reconcile.Remove {
		return o.kernel.Remove(c.Key.entry)
	}
	return o.kernel.Add(c.Key.entry, c.New.note)
}

// changeAddresses binds or unbinds addresses.
func (o *objects) changeAddresses(ctx context.Context, all []change) error {
	slices.SortFunc(all, compareChanges)
	for _, c := range all {
		if err := o.step(ctx); err != nil {
			return err
		}
		if c.Op == reconcile.Remove {
			if err := o.kernel.Unbind(c.Key.entry.addr); err != nil {
				return fmt.Errorf("unbind %s: %w", c.Key.entry.addr, err)
			}
			continue
		}
		if err := o.kernel.Bind(c.Key.entry.addr); err != nil {
			return fmt.Errorf("bind %s: %w", c.Key.entry.addr, err)
		}
	}
	return nil
}

func (o *objects) step(ctx context.Context) error {
	o.session.env.Step()
	return ctx.Err()
}

// changeServers changes virtual servers. It reverts one that the kernel refuses to its old state.
func (o *objects) changeServers(ctx context.Context, all []change) (refused map[key]error, err error) {
	slices.SortFunc(all, compareChanges)
	var raise, lower []step
	for _, c := range all {
		up, down := serverSteps(c)
		raise, lower = append(raise, up...), append(lower, down...)
	}
	refused = make(map[key]error)
	for _, steps := range [][]step{raise, lower} {
		for len(steps) > 0 {
			if err := o.step(ctx); err != nil {
				return nil, err
			}
			n := min(len(steps), maxSteps)
			if err := o.send(steps[:n], refused); err != nil {
				return nil, err
			}
			steps = steps[n:]
		}
	}
	for _, c := range all {
		if why := refused[c.Key]; why != nil {
			if err := o.revert(c); err != nil {
				return nil, errors.Join(why, err)
			}
		}
	}
	return refused, nil
}

// revert restores a virtual server after the kernel refused a change of it.
func (o *objects) revert(c change) error {
	back := change{Op: reconcile.Replace, Key: c.Key, Old: c.New, New: c.Old}
	if c.Op == reconcile.Add {
		back.Op = reconcile.Remove
	}
	up, down := serverSteps(back)
	return o.kernel.do(append(up, down...)...)
}

// send sends steps, of which the kernel may refuse some. It changes what exists already: a virtual server is
// unknown after another program has removed the set member that names it.
func (o *objects) send(steps []step, refused map[key]error) error {
	steps = slices.DeleteFunc(slices.Clone(steps), func(s step) bool { return refused[key{kind: ofServer, server: s.service}] != nil })
	if len(steps) == 0 {
		return nil
	}
	answers, err := o.kernel.Send(steps)
	if err != nil {
		return fmt.Errorf("%s: %w", steps[0], err)
	}
	var again []step
	for i, s := range steps {
		at := key{kind: ofServer, server: s.service}
		switch err := answers[i]; {
		case err == nil || refused[at] != nil:
		case errors.Is(err, syscall.EEXIST):
			s.verb = map[verb]verb{addService: setService, addDest: weighDest}[s.verb]
			again = append(again, s)
		default:
			if refused[at], err = blame(s, err); err != nil {
				return err
			}
		}
	}
	return o.send(again, refused)
}

// blame returns why the kernel refused a virtual server. An error that concerns the node, or shows that this
// process has wrong knowledge of the kernel, is returned as fatal: it belongs to no single virtual server.
func blame(s step, err error) (refusal, fatal error) {
	switch {
	case s.verb == removeService, errors.Is(err, syscall.EPERM), errors.Is(err, syscall.ESRCH):
		return nil, fmt.Errorf("%s: %w", s, err)
	case errors.Is(err, syscall.ENOENT) && (s.verb == addService || s.verb == setService):
		err = noScheduler(s.scheduler)
	case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ENOMEM):
		return nil, fmt.Errorf("%s: %w", s, err)
	}
	return fmt.Errorf("%s: %w", s, err), nil
}

func noScheduler(name string) error {
	return &sdk.Refusal{Field: "scheduler", Why: "the kernel has no scheduler " + name + ", or cannot load it", Try: "modprobe ip_vs_" + name}
}

// A verb is the kind of a step. Its value is the number of the kernel's command (include/uapi/linux/ip_vs.h).
type verb uint8

const (
	addService    verb = 1
	setService    verb = 2
	removeService verb = 3
	addDest       verb = 5
	weighDest     verb = 6
	removeDest    verb = 7
)

// A step is one message to IPVS.
type step struct {
	verb    verb
	service serviceKey
	scheduling
	dest   netip.AddrPort
	weight int
}

// String returns the step in the terms of ipvsadm.
func (s step) String() string {
	switch s.verb {
	case addService, setService:
		return fmt.Sprintf("%s server %s %s", map[verb]string{addService: "add", setService: "set"}[s.verb], s.service, s.scheduling)
	case removeService:
		return fmt.Sprintf("remove server %s", s.service)
	case removeDest:
		return fmt.Sprintf("remove real %s on %s", s.dest, s.service)
	}
	return fmt.Sprintf("%s real %s on %s weight %d", map[verb]string{addDest: "add", weighDest: "weigh"}[s.verb], s.dest, s.service, s.weight)
}

// serverSteps returns the steps of a change. raise makes every destination serve that should; lower then stops new
// connections to the others.
func serverSteps(c change) (raise, lower []step) {
	at, was, v := c.Key.server, c.Old.state, c.New.state
	switch {
	case c.Op == reconcile.Remove:
		return nil, []step{{verb: removeService, service: at}}
	case c.Op == reconcile.Add:
		raise, was = append(raise, step{verb: addService, service: at, scheduling: v.scheduling}), state{}
	case was.scheduling != v.scheduling || was.flags != v.flags:
		raise = append(raise, step{verb: setService, service: at, scheduling: v.scheduling})
	}
	had := was.weights()
	for weight, list := range [][]netip.AddrPort{v.idle.list(), v.serving.list()} {
		for _, dest := range list {
			old, is := had[dest]
			delete(had, dest)
			s := step{verb: weighDest, service: at, dest: dest, weight: weight}
			switch {
			case !is:
				s.verb = addDest
				raise = append(raise, s)
			case old != weight && weight > 0:
				raise = append(raise, s)
			case old != weight:
				lower = append(lower, s)
			}
		}
	}
	for _, dest := range slices.SortedFunc(maps.Keys(had), netip.AddrPort.Compare) {
		lower = append(lower, step{verb: removeDest, service: at, dest: dest})
	}
	return raise, lower
}
