// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// End ends the plugin that h names, whichever host it served: politely where it
// answers, by signal where it does not. It is for a host that finds what another
// left behind. A process that has ended is no error; one that only has the pid of
// the plugin is not touched. End returns within ten seconds.
func End(ctx context.Context, h Handle) error {
	polite, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	remote, err := Attach(polite, h)
	switch {
	case err == nil:
		return remote.Stop(ctx)
	case errors.Is(err, os.ErrProcessDone):
		h.sweep()
		return nil
	case h.PID == 0 || h.Start == 0:
		return err // there is no telling whose process a signal would hit
	}
	p, err := watch(h.PID, h.Start)
	if errors.Is(err, os.ErrProcessDone) {
		h.sweep()
		return nil
	}
	if err != nil {
		return fmt.Errorf("end %s: %w", h, err)
	}
	defer p.forget()
	defer h.sweep()
	for _, sig := range []os.Signal{syscall.SIGTERM, os.Kill} {
		p.kill(sig)
		if p.wait(ctx, time.Second) {
			return nil
		}
	}
	return fmt.Errorf("end %s: %w", h, ErrStillThere)
}
