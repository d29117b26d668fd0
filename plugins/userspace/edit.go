// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"slices"

	"github.com/pointsman/pointsman/sdk"
)

// An edit is one Service that is to be served in another way.
type edit struct {
	name   sdk.Name
	value  *sdk.Service // nil: no more
	claims []claim
	err    error // it cannot be served at all

	// ours: no update asked for it, the machine's addresses have changed. What
	// cannot be opened then is owed, and the rest served.
	ours bool
}

// edits are what changes come to. What is kept stays out of them, and so stays
// as it is.
func (d *Dataplane) edits(c sdk.Changes) []edit {
	nodePorts := d.nodePorts()
	var edits []edit
	for _, change := range c.Services {
		switch {
		case change.After != nil:
			claims, err := want(*change.After, nodePorts)
			if err == nil {
				err = d.refuseFamily(change.Name.Family)
			}
			edits = append(edits, edit{name: change.Name, value: change.After, claims: claims, err: err})
		case !d.state.Kept[change.Name]:
			edits = append(edits, edit{name: change.Name})
		}
	}
	if c.Full {
		for name := range d.services {
			if _, wanted := d.state.Services[name]; !wanted && !d.state.Kept[name] {
				edits = append(edits, edit{name: name})
			}
		}
	}
	return edits
}

// stand makes g the ground under all connections, and returns what node ports
// come to on it when it takes them at other addresses.
func (d *Dataplane) stand(g *ground) []edit {
	was := d.ground
	d.setGround(g)
	if d.way != nil || slices.Equal(was.nodePorts, g.nodePorts) {
		return nil
	}
	var edits []edit
	for name := range d.roaming {
		value := d.services[name].Value()
		claims, err := want(*value, g.nodePorts)
		edits = append(edits, edit{name: name, value: value, claims: claims, err: err, ours: true})
	}
	return edits
}
