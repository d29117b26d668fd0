// SPDX-License-Identifier: Apache-2.0

package sdk

import "net/netip"

// An Endpoint is one address that serves.
type Endpoint struct {
	Addr netip.AddrPort

	// OnNode says that the endpoint runs on this node, or may: its node is ours
	// or was not given. It may then be its own client, and such a connection
	// must be masqueraded, or its replies would never leave it. See
	// [Service.MayCallItself].
	OnNode bool
}

// String returns a form such as "10.180.0.1:8080 here", as in scenario files. "here" means
// OnNode.
func (e Endpoint) String() string {
	if e.OnNode {
		return e.Addr.String() + " here"
	}
	return e.Addr.String()
}

// Compare orders endpoints by address; for equal addresses, the one on this node is first.
func (e Endpoint) Compare(g Endpoint) int {
	if c := e.Addr.Compare(g.Addr); c != 0 || e.OnNode == g.OnNode {
		return c
	}
	if e.OnNode {
		return -1
	}
	return 1
}
