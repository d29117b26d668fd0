// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
)

// written is the network that the manifests in configs/demo name.
const written = "127.77."

// A network is a part of 127.0.0.0/8 that this demo has for itself, so that two of
// them can run at a time.
type network struct {
	prefix string       // such as "127.77."
	guard  net.Listener // whose address reserves the network
}

// claim takes the first network that is free, beginning with the one that is
// written in the manifests.
func claim() (network, error) {
	var last error
	for n := 77; n < 97; n++ {
		prefix := fmt.Sprintf("127.%d.", n)
		guard, err := net.Listen("tcp4", prefix+"0.1:7077")
		if err == nil {
			return network{prefix, guard}, nil
		}
		last = err
	}
	return network{}, fmt.Errorf("find free addresses in 127.77.0.0 to 127.96.255.255 (Linux has them all, other systems only 127.0.0.1): %w", last)
}

func (n network) release() {
	if n.guard != nil {
		_ = n.guard.Close()
	}
}

// own returns text with the network's own addresses instead of those written.
func (n network) own(text string) string { return strings.ReplaceAll(text, written, n.prefix) }

// at returns an address as written, in the network itself.
func (n network) at(addr string) netip.AddrPort { return netip.MustParseAddrPort(n.own(addr)) }
