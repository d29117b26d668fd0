// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"context"
	"fmt"
	"net"

	"github.com/pointsman/pointsman/internal/pipe"
)

// Dial connects to a host's admin socket, which is a named pipe on Windows.
func Dial(ctx context.Context, path string) (net.Conn, error) { return pipe.Dial(ctx, path) }

// Listen creates the pipe with access for this user, administrators and the system. It does not
// replace a pipe on which a host answers; Windows removes the pipe when its host ends.
func Listen(path string) (net.Listener, error) {
	l, err := pipe.Listen(path)
	if err != nil {
		return nil, fmt.Errorf("listen on the admin socket %s: %w; if another host answers there, stop it, or set adminSocket and stateDir to others", path, err)
	}
	return l, nil
}
