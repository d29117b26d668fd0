// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"fmt"
)

// Attach connects to a plugin that listens for itself ([At]), whichever process that is:
// it must run as this user or as root. It counts as ended when the connection does.
func Attach(ctx context.Context, t Target) (*Remote, error) {
	process := newUnseen()
	r, err := Dial(ctx, t, process)
	if err != nil {
		return nil, fmt.Errorf("attach to %s: %w", t, err)
	}
	process.follow(r.conn)
	r.release = process.cancel
	return r, nil
}
