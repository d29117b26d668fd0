// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/pointsman/pointsman/plugins/userspace/relay"
	"github.com/pointsman/pointsman/sdk"
)

// explain makes an error of relay.Listen one that says what to do. What no retry can
// mend is a Refusal.
func explain(p place, err error) error {
	switch {
	case notOurs(err):
		return &sdk.Refusal{
			Field: "frontends",
			Why:   fmt.Sprintf("no interface of this machine has the address %s", p.addr.Addr()),
			Try:   fmt.Sprintf("ip address add %s dev lo", netip.PrefixFrom(p.addr.Addr(), p.addr.Addr().BitLen())),
		}
	case errors.Is(err, relay.ErrNotAllowed):
		return &sdk.Refusal{
			Field: "frontends",
			Why:   fmt.Sprintf("this process may not listen on port %d", p.addr.Port()),
			Try:   fmt.Sprintf("sysctl net.ipv4.ip_unprivileged_port_start=%d, or give the plugin CAP_NET_BIND_SERVICE", p.addr.Port()),
		}
	case errors.Is(err, relay.ErrInUse):
		return fmt.Errorf("listen on %s: another program has it (ss -%slnp sport = :%d shows which): %w",
			p, p.protocol.String()[:1], p.addr.Port(), err)
	}
	return fmt.Errorf("listen on %s: %w", p, err)
}

// notOurs reports whether the machine lacks the address, now.
func notOurs(err error) bool { return errors.Is(err, relay.ErrNotLocal) }
