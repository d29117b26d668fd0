// SPDX-License-Identifier: Apache-2.0

package launch

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
// left behind. A process that has ended is no error. One that does not answer gets a
// signal only if its environment, its network namespace and the file that it executes are
// those that h has: else the error is ErrNotPlugin. End returns within ten seconds.
func End(ctx context.Context, h Handle) error {
	polite, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	plugin, err := Attach(polite, h)
	switch {
	case err == nil:
		return plugin.Stop(ctx)
	case errors.Is(err, os.ErrProcessDone):
		h.removeDir()
		return nil
	case h.PID == 0 || h.Start == 0:
		return err // there is no telling whose process a signal would hit
	}
	p, err := watch(h.PID, h.Start)
	if errors.Is(err, os.ErrProcessDone) {
		h.removeDir()
		return nil
	}
	if err != nil {
		return fmt.Errorf("end %s: %w", h, err)
	}
	defer p.forget()
	switch err := h.shows(p); {
	case errors.Is(err, os.ErrProcessDone):
		h.removeDir()
		return nil
	case err != nil:
		return fmt.Errorf("end %s: %w", h, err)
	}
	defer h.removeDir()
	if err := p.terminate(ctx); err != nil {
		return fmt.Errorf("end %s: %w", h, err)
	}
	return nil
}

// terminate ends the process by signals: SIGTERM, and a second later SIGKILL.
func (p *process) terminate(ctx context.Context) error {
	for _, sig := range []os.Signal{syscall.SIGTERM, os.Kill} {
		p.kill(sig)
		if p.wait(context.WithoutCancel(ctx), time.Second) {
			return nil
		}
	}
	return ErrStillThere
}

// Shown reports whether the process that h names runs, and shows itself to be the plugin
// that was launched; the error is what speaks against it. One that has ended is no error.
func (h Handle) Shown() (bool, error) {
	if h.PID == 0 || h.Start == 0 {
		return false, ErrNotPlugin
	}
	p, err := watch(h.PID, h.Start)
	if err == nil {
		defer p.forget()
		err = h.shows(p)
	}
	if errors.Is(err, os.ErrProcessDone) {
		return false, nil
	}
	return err == nil, err
}
