// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"slices"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/userspace/relay"
	"github.com/pointsman/pointsman/sdk"
)

// This file is for rules that the kernel refuses: the turn that needs them is taken
// back, and its Services are tried apart from one another (see carryOut).

// was is a Service as it was before a turn; nil: there was none.
type was struct {
	service *relay.Service
	value   *sdk.Service
}

func (d *Dataplane) as(name sdk.Name) was {
	s := d.services[name]
	if s == nil {
		return was{}
	}
	return was{s, s.Value()}
}

// takeBack makes sockets, services and rules what they were before t. The kernel
// follows with the next write, which reads it first.
func (d *Dataplane) takeBack(t *turn) {
	for name := range t.edits {
		d.table.restore(name, t.before[name])
	}
	for name, was := range t.were {
		if was.service == nil {
			delete(d.services, name)
			delete(d.roaming, name)
			continue
		}
		d.services[name] = was.service
		was.service.Set(*was.value)
		d.noteRoaming(*was.value)
	}
	for _, verb := range []verb{give, closeDown} {
		d.settle(d.plan(t), verb)
	}
	for name := range t.were {
		d.tellSockets(name)
		d.stakeHealth(name)
	}
	d.stake(t.touched)
}

// suspects are the Services of t that the refused line may belong to: those one of
// whose frontends it is about. None: nobody can tell.
func (d *Dataplane) suspects(t *turn, refused *iptables.LineError) []sdk.Name {
	var all []sdk.Name
	for name := range t.edits {
		rules := d.way.rules.of(name.Family)
		if rules == nil {
			continue
		}
		for _, c := range slices.Concat(t.before[name], d.table.claims[name]) {
			if refused.Chain.Chain == ownChain(c.place) || rules.Concerns(key{caught: c.place}, refused) {
				all = append(all, name)
				break
			}
		}
	}
	return all
}

// names are those of the Services that edits are about, each once.
func names(edits []edit) []sdk.Name {
	var all []sdk.Name
	seen := make(map[sdk.Name]bool, len(edits))
	for _, e := range edits {
		if !seen[e.name] {
			all = append(all, e.name)
		}
		seen[e.name] = true
	}
	return all
}

// of are the edits of some Services.
func of(edits []edit, some []sdk.Name) []edit {
	if len(some) == 0 {
		return nil
	}
	wanted := make(map[sdk.Name]bool, len(some))
	for _, name := range some {
		wanted[name] = true
	}
	return slices.DeleteFunc(slices.Clone(edits), func(e edit) bool { return !wanted[e.name] })
}
