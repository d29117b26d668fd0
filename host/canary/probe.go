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

// ErrUnproved says that no answer of the canary can be demanded.
var ErrUnproved = errors.New("the swap goes on unproved")

const (
	probedWithin  = 500 * time.Millisecond  // for an answer before traffic is switched
	provedWithin  = 1500 * time.Millisecond // for ten in a row once a dataplane is Active
	probedInARow  = 5
	provedInARow  = 10
	betweenProbes = 20 * time.Millisecond // after one that had no answer
)

// Probe finds the targets that answer now.
func (c *Canary) Probe(ctx context.Context) (answering []string) {
	targets := c.all()
	for i, err := range c.probeAll(ctx, targets, probedInARow, probedWithin) {
		if err == nil {
			answering = append(answering, targets[i].addr.String())
		}
	}
	return answering
}

// Prove demands an answer from the targets that answered before, but for those of Services
// that are not served. If none did, one must answer now. It is ErrUnproved where nothing can
// be demanded: a node without a network has no address to lead packets to, and what is to
// serve may serve none of the canary's Services.
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

// probeAll probes all targets at once, and returns for each why it does not answer. New
// connections of users go to the same dataplane meanwhile, so it gives up soon.
func (c *Canary) probeAll(ctx context.Context, targets []target, inARow int, limit time.Duration) []error {
	errs := make([]error, len(targets))
	var all sync.WaitGroup
	for i, t := range targets {
		all.Go(func() { errs[i] = probe(ctx, t, inARow, c.timeout(limit)) })
	}
	all.Wait()
	return errs
}

// timeout returns a limit in which time does not count that the host, or a plugin, spends
// waiting for a processor: this process answers, and the connection may lead through a
// relay.
func (c *Canary) timeout(limit time.Duration) patience {
	p := patience{limit: limit}
	if c.plugins != nil {
		p.pids = c.plugins()
	}
	return p
}

// probe connects until the target has answered so often in a row.
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

// connect connects once, and reads the greeting.
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
