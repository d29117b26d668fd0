// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"fmt"
	"net"

	"github.com/pointsman/pointsman/internal/pipe"
)

// addressForm shows the form of an address for --listen, for messages.
const addressForm = pipe.Prefix + "NAME"

func at(address string) (Target, error) {
	if !pipe.IsPath(address) {
		return Target{}, fmt.Errorf("address %q: want a pipe, %s", address, addressForm)
	}
	return Target{Network: overPipe, Address: address}, nil
}

// open connects to the target. The pipe must belong to this user, administrators or the system.
func (t Target) open(ctx context.Context) (net.Conn, error) {
	if t.Network == overPipe {
		return pipe.Dial(ctx, t.Address)
	}
	return (&net.Dialer{}).DialContext(ctx, t.Network, t.Address)
}

// listen creates the pipe, accessible to this user, administrators and the system only.
func (s socket) listen() (net.Listener, error) {
	if _, err := at(s.address); err != nil {
		return nil, err
	}
	return pipe.Listen(s.address)
}
