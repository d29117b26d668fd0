// SPDX-License-Identifier: Apache-2.0

package canary

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// ErrUnproved means that the canary cannot prove anything on this node.
var ErrUnproved = errors.New("the swap goes on unproved")

const (
	probedWithin  = 500 * time.Millisecond  // for probedInARow answers, before traffic is switched
	provedWithin  = 1500 * time.Millisecond // for provedInARow answers, after a dataplane became Active
	probedInARow  = 5
	provedInARow  = 10
	betweenProbes = 20 * time.Millisecond // after a failed probe
)

// Probe returns the targets that answer now.
func (c *Canary) Probe(ctx context.Context) (answering []string) {
	targets := c.all()
	for i, err := range c.probeAll(ctx, targets, probedInARow, probedWithin) {
		if err == nil {
			answering = append(answering, targets[i].addr.String())
		}
	}
	return answering
}

// Prove checks that the targets in before answer, except those of Services that are not served.
// If before is empty, at least one target must answer. Prove returns ErrUnproved if no answer
// can be expected: the node has no network and so no address, or the dataplane serves none of
// the canary's Services.
func (c *Canary) Prove(ctx context.Context, before []string, unserved map[sdk.Name]bool) error {
	if c.addr.IsLoopback() {
		return fmt.Errorf("this node has no address but its own loopback's: %w", ErrUnproved)
	}
	targets := c.all()
	served := slices.DeleteFunc(slices.Clone(targets), func(t target) bool {
		return unserved[sdk.Name{Namespace: Namespace, Service: t.service, Protocol: sdk.TCP, Family: sdk.FamilyOf(t.addr.Addr())}]
	})
	if len(served) == 0 && len(targets) > 0 {
		return fmt.Errorf("what is to serve has said that it serves no way to the canary: %w", ErrUnproved)
	}
	demanded := slices.DeleteFunc(served, func(t target) bool {
		return len(before) > 0 && !slices.Contains(before, t.addr.String())
	})
	errs := slices.DeleteFunc(c.probeAll(ctx, demanded, provedInARow, provedWithin), func(err error) bool { return err == nil })
	switch {
	case len(before) > 0:
		return errors.Join(errs...)
	case len(errs) == len(demanded):
		return errors.Join(append(errs, errors.New("no way leads to the canary"))...)
	}
	return nil
}

func (c *Canary) all() []target {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.targets)
}

// probeAll probes all targets concurrently and returns the error of each. It gives up soon,
// because meanwhile new connections of users go to the same dataplane.
func (c *Canary) probeAll(ctx context.Context, targets []target, inARow int, limit time.Duration) []error {
	errs := make([]error, len(targets))
	var all sync.WaitGroup
	for i, t := range targets {
		all.Go(func() { errs[i] = probe(ctx, t, inARow, c.timeout(limit)) })
	}
	all.Wait()
	return errs
}

// timeout returns a limit that excludes time in which the host or a plugin waits for a
// processor: this process answers the probes, and a plugin may relay them.
func (c *Canary) timeout(limit time.Duration) patience {
	p := patience{limit: limit}
	if c.plugins != nil {
		p.pids = c.plugins()
	}
	return p
}

// probe connects until the target has answered inARow times in a row.
func probe(ctx context.Context, t target, inARow int, timeout patience) error {
	ctx, cancel := timeout.context(ctx)
	defer cancel()
	for answered := 0; answered < inARow; {
		err := connect(ctx, t.addr)
		if err == nil {
			answered++
			continue
		}
		answered = 0
		select {
		case <-ctx.Done():
			return fmt.Errorf("the canary at %s (%s): %w", t.addr, t.service, err)
		case <-time.After(betweenProbes):
		}
	}
	return nil
}

// connect connects once and checks the greeting.
func connect(ctx context.Context, addr netip.AddrPort) error {
	conn, err := (&net.Dialer{Timeout: time.Second / 2}).DialContext(ctx, "tcp", addr.String())
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	text, err := bufio.NewReader(io.LimitReader(conn, int64(len(greeting)))).ReadString('\n')
	if err == nil && text != greeting {
		err = fmt.Errorf("it said %q", text)
	}
	return err
}
