// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pointsman/pointsman/host/admin"
)

// waitForDecision waits until it is certain which mode serves: the swap is over, or has passed its canary. The time
// after that belongs to the drain. The load then continues with the mode that serves.
func (n *node) waitForDecision(l *load) {
	n.Helper()
	n.until("it is clear which serves", func() error {
		m, err := n.Mode(n.Context())
		if err == nil && m.Swap != nil && m.Swap.Stage != "draining" && m.Swap.Stage != "clearing" {
			err = fmt.Errorf("%+v", *m.Swap)
		}
		return err
	})
	l.more(150)
}

// ask asks for a swap, and does not wait for it.
func (n *node) ask(mode string) {
	n.Helper()
	if _, err := n.SwapMode(n.Context(), admin.SwapAsk{To: mode}); err != nil {
		n.Fatal(err)
	}
}

// waitForRest waits until no swap is in progress.
func (n *node) waitForRest() (m admin.Mode) {
	n.Helper()
	n.until("no swap is under way", func() (err error) {
		if m, err = n.Mode(n.Context()); err == nil && m.Swap != nil {
			err = fmt.Errorf("%+v", *m.Swap)
		}
		return err
	})
	return m
}

// waitForEvent waits until an event with this text is reported.
func (n *node) waitForEvent(text string) {
	n.Helper()
	n.until("an event says "+text, func() error {
		events, err := n.Events(n.Context())
		if err == nil && !slices.ContainsFunc(events.Items, func(e admin.Event) bool { return strings.Contains(e.Message, text) }) {
			err = fmt.Errorf("%+v", events.Items)
		}
		return err
	})
}

// serves checks that mode serves.
func (n *node) serves(mode string) func() error {
	return func() error {
		m, err := n.Mode(n.Context())
		if err == nil && (m.Mode != mode || m.Swap != nil && !m.Swap.Moved()) {
			err = fmt.Errorf("mode %s, swap %+v, last %+v", m.Mode, m.Swap, m.Last)
		}
		return err
	}
}

// servesWith checks that mode serves with another process than before.
func (n *node) servesWith(mode string, before int) func() error {
	return func() error {
		s, err := n.Status(n.Context())
		if err == nil && (s.Dataplane.PID == before || s.Dataplane.PID == 0 || s.Dataplane.Role != "active") {
			err = fmt.Errorf("pid %d, role %s, swap %+v, last %+v", s.Dataplane.PID, s.Dataplane.Role, s.Swap, s.LastSwap)
		}
		return err
	}
}
