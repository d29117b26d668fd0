// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/pointsman/pointsman/sdk/wire"
)

// Attach connects to a plugin that runs already: one that a former host launched, by the
// Handle it kept, or one that listens for itself, by a Handle with a Target alone
// ([wire.At]). It checks that it is the very process that is meant, not one that got its
// pid or its socket since; where that process has ended, the error is os.ErrProcessDone.
func Attach(ctx context.Context, h Handle) (*Plugin, error) {
	if h.PID == 0 {
		return attachListener(ctx, h)
	}
	plugin, err := attach(ctx, h, h.PID, h.Start)
	if err != nil {
		return nil, fmt.Errorf("attach to %s: %w", h, err)
	}
	return plugin, nil
}

func attach(ctx context.Context, h Handle, pid int, start uint64) (*Plugin, error) {
	p, err := watch(pid, start)
	if err != nil {
		return nil, err
	}
	h.PID, h.Start = p.pid, p.start
	plugin, err := connect(ctx, h, p)
	if err != nil {
		p.forget()
		return nil, err
	}
	return plugin, nil
}

// attachListener attaches to whichever process is behind the socket. One that cannot be
// seen from here, as in another container, counts as ended when the connection does.
func attachListener(ctx context.Context, h Handle) (*Plugin, error) {
	pid, err := h.Target.PID(ctx)
	if err != nil {
		return nil, fmt.Errorf("attach to %s: %w", h, err)
	}
	if pid != 0 {
		plugin, err := attach(ctx, h, pid, 0)
		if err == nil {
			return plugin, nil
		}
		if !errors.Is(err, os.ErrProcessDone) { // else /proc may be mounted with hidepid
			return nil, fmt.Errorf("attach to %s: %w", h, err)
		}
	}
	return attachUnseen(ctx, h)
}

func attachUnseen(ctx context.Context, h Handle) (*Plugin, error) {
	remote, err := wire.Attach(ctx, h.Target)
	if err != nil {
		return nil, err
	}
	p := newProcess(0)
	p.exited = remote.Exited()
	p.exit = Exit{Code: -1, Stderr: []string{"the connection to it was lost"}}
	h.Target = remote.Target()
	return &Plugin{Remote: remote, process: p, handle: h}, nil
}
