// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"testing"

	"github.com/pointsman/pointsman/host/swap"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/wire"
)

// TestWantedBackDrainsOn: a dataplane that drains and is wanted back stays Draining until
// the swap makes it Active. In any other role it might let go of connections that it has.
func TestWantedBackDrainsOn(t *testing.T) {
	s := newFormerHost(t)
	s.write(modeFile(s.host), `{"serving":"userspace","swap":{"stage":"draining","plan":{"from":"iptables","to":"userspace"}}}`)
	set := s.next()
	defer set.canary.End()
	d, err := swapHost{set}.Open(t.Context(), swap.Plan{From: "userspace", To: "iptables"})
	if err != nil {
		t.Fatal(err)
	}
	if p := d.(swapSide); p.name != "iptables" || p.want != 0 {
		t.Errorf("%s is to be %s, want that it keeps the role it has", p.name, p.want)
	}
}

// TestFlowsOfOneWithoutItsRole are not known: it counts them while it drains. A drain that
// took them for none would clear away what serves them.
func TestFlowsOfOneWithoutItsRole(t *testing.T) {
	p := idle("iptables")
	p.want, p.session = sdk.Draining, &session{remote: new(wire.Remote)}
	if n, err := (swapSide{p}).Flows(t.Context()); err == nil {
		t.Errorf("%d flows, before the process was made Draining", n)
	}
}
