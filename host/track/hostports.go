// SPDX-License-Identifier: Apache-2.0

package track

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/pointsman/pointsman/sdk"
)

// A HostPort is a port at which a Service is reached by an address of this node: its
// node port, or an external address that the node has as well.
type HostPort struct {
	Service  Key
	Addr     netip.AddrPort // unspecified: every address that takes node ports
	Protocol sdk.Protocol
}

// String reads as in a scenario: "node port 30080/tcp", "192.0.2.10:80/tcp".
func (p HostPort) String() string {
	if p.Addr.Addr().IsUnspecified() {
		return fmt.Sprintf("node port %d/%s", p.Addr.Port(), p.Protocol)
	}
	return fmt.Sprintf("%s/%s", p.Addr, p.Protocol)
}

// outside are the claims on ports that are reached from outside the cluster, so that to list
// them costs what they are, not what all Services are.
type outside struct {
	claims  map[claim]bool
	changes uint64
}

func (o *outside) add(c claim, kind sdk.Kind) {
	if kind == sdk.NodePort || kind == sdk.ExternalIP || kind == sdk.LoadBalancer {
		o.claims[c] = true
		o.changes++
	}
}

func (o *outside) remove(c claim) {
	if o.claims[c] {
		delete(o.claims, c)
		o.changes++
	}
}

// HostPorts lists the ports at which Services are reached by this node's addresses,
// and the number that HostPortChanges has as long as they are the same.
func (t *Tracker) HostPorts() (list []HostPort, changes uint64) {
	t.mu.Lock()
	defer t.unlock()
	for c := range t.owners.outside.claims {
		first := t.owners.queues[c][0]
		if first.kind == sdk.ClusterIP || !c.addr.Addr().IsUnspecified() && !slices.Contains(t.node.Addrs, c.addr.Addr()) {
			continue
		}
		list = append(list, HostPort{Service: first.svc.key, Addr: c.addr, Protocol: c.protocol})
	}
	slices.SortFunc(list, func(a, b HostPort) int {
		return cmp.Or(a.Addr.Compare(b.Addr), cmp.Compare(a.Protocol, b.Protocol))
	})
	return list, t.owners.outside.changes
}

// HostPortChanges returns another number after each change of HostPorts but one of the
// node's addresses.
func (t *Tracker) HostPortChanges() uint64 {
	t.mu.Lock()
	defer t.unlock()
	return t.owners.outside.changes
}
