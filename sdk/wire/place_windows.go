// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"fmt"
	"net"

	"github.com/pointsman/pointsman/internal/pipe"
)

// addressForm is how an address is written at which a plugin listens by itself, for people.
const addressForm = pipe.Prefix + "NAME"

func at(address string) (Target, error) {
	if !pipe.IsPath(address) {
		return Target{}, fmt.Errorf("address %q: want a pipe, %s", address, addressForm)
	}
	return Target{Network: overPipe, Address: address}, nil
}

// open connects to what listens there. A pipe must be of this user, of administrators or of the
// system.
func (t Target) open(ctx context.Context) (net.Conn, error) {
	if t.Network == overPipe {
		return pipe.Dial(ctx, t.Address)
	}
	return (&net.Dialer{}).DialContext(ctx, t.Network, t.Address)
}

// listen makes the pipe, which is open to this user, administrators and the system alone.
func (s socket) listen() (net.Listener, error) {
	if _, err := at(s.address); err != nil {
		return nil, err
	}
	return pipe.Listen(s.address)
}
