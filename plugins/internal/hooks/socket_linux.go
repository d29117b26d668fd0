// SPDX-License-Identifier: Apache-2.0

package hooks

import (
	"errors"
	"fmt"
	"net/netip"
	"os"

	"github.com/pointsman/pointsman/plugins/internal/trace"
)

// hasSocket reports whether a socket in the calling thread's network namespace takes a packet.
func hasSocket(p trace.Packet, wildcards bool) (bool, error) {
	return socketAt(p.Protocol, p.To, wildcards)
}

func socketAt(protocol string, to netip.AddrPort, wildcards bool) (bool, error) {
	if protocol != "tcp" && protocol != "udp" {
		return false, fmt.Errorf("sockets of %s are not seen", protocol)
	}
	names := []string{protocol, protocol + "6"}
	if to.Addr().Is6() {
		names = names[1:]
	}
	for _, name := range names {
		found, err := listed(name, protocol, to)
		switch {
		case err != nil:
			return false, err
		case found == byAddress:
			return true, nil
		case found == byWildcard && wildcards && to.Addr().Is4() && name != protocol:
			return false, fmt.Errorf("a socket of IPv6 has the %s port %d, and it is not seen whether it takes IPv4", protocol, to.Port())
		case found == byWildcard && wildcards:
			return true, nil
		}
	}
	return false, nil
}

// listed looks into one of the kernel's lists. A family that the kernel has not got has no sockets.
func listed(name, protocol string, to netip.AddrPort) (taking, error) {
	list, err := os.Open("/proc/thread-self/net/" + name)
	if errors.Is(err, os.ErrNotExist) {
		return byNothing, nil
	}
	if err != nil {
		return byNothing, fmt.Errorf("list sockets: %w", err)
	}
	defer list.Close()
	found, err := takenBy(list, protocol, to)
	if err != nil {
		return byNothing, fmt.Errorf("list sockets: %w", err)
	}
	return found, nil
}
