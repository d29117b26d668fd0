// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"context"
	"fmt"
	"net"

	"github.com/pointsman/pointsman/internal/pipe"
)

// Dial connects to a host's admin socket, which is a named pipe here, until ctx ends.
func Dial(ctx context.Context, path string) (net.Conn, error) { return pipe.Dial(ctx, path) }

// Listen makes the pipe, which only this user, administrators and the system may open. One that
// a host answers on is not replaced; Windows removes the one of a host that has ended.
func Listen(path string) (net.Listener, error) {
	l, err := pipe.Listen(path)
	if err != nil {
		return nil, fmt.Errorf("listen on the admin socket %s: %w; if another host answers there, stop it, or set adminSocket and stateDir to others", path, err)
	}
	return l, nil
}
