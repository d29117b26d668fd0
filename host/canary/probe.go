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
var ErrUnproved = errors.New("the swap continues without proof")

const (
	probeLimit    = 500 * time.Millisecond  // for probedInARow answers, before traffic is switched
	proofLimit    = 1500 * time.Millisecond // for provedInARow answers, after a dataplane became Active
	probedInARow  = 5
	provedInARow  = 10
	probeInterval = 20 * time.Millisecond // after a failed attempt

	// A target counts as not answering only after this many failed attempts. On a busy machine an answer may take
	// seconds, because this process or a plugin that relays it has to wait for a processor. If the rules lead to no
	// endpoint, an attempt fails within dialTimeout.
	probeAttempts = 2
	proveAttempts = 5

	dialTimeout   = 300 * time.Millisecond
	answerTimeout = time.Second
)

// Probe returns the targets that answer now.
func (c *Canary) Probe(ctx context.Context) (answering []string) {
	targets := c.all()
	for i, err := range probeAll(ctx, targets, probedInARow, probeAttempts, probeLimit) {
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
		return fmt.Errorf("this node has no address besides the loopback address: %w", ErrUnproved)
	}
	targets := c.all()
	served := slices.DeleteFunc(slices.Clone(targets), func(t target) bool {
		return unserved[sdk.Name{Namespace: Namespace, Service: t.service, Protocol: sdk.TCP, Family: sdk.FamilyOf(t.addr.Addr())}]
	})
	if len(served) == 0 && len(targets) > 0 {
		return fmt.Errorf("the dataplane serves no frontend of the canary: %w", ErrUnproved)
	}
	demanded := slices.DeleteFunc(served, func(t target) bool {
		return len(before) > 0 && !slices.Contains(before, t.addr.String())
	})
	errs := slices.DeleteFunc(probeAll(ctx, demanded, provedInARow, proveAttempts, proofLimit), func(err error) bool { return err == nil })
	switch {
	case len(before) > 0:
		return errors.Join(errs...)
	case len(errs) == len(demanded):
		return errors.Join(append(errs, errors.New("no connection reaches the canary"))...)
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
func probeAll(ctx context.Context, targets []target, inARow, attempts int, limit time.Duration) []error {
	errs := make([]error, len(targets))
	var all sync.WaitGroup
	for i, t := range targets {
		all.Go(func() { errs[i] = probe(ctx, t, inARow, attempts, limit) })
	}
	all.Wait()
	return errs
}

// probe connects until the target has answered inARow times in a row, or until limit has
// passed and at least the given number of attempts have failed.
func probe(ctx context.Context, t target, inARow, attempts int, limit time.Duration) error {
	began, failures := time.Now(), 0
	for answered := 0; answered < inARow; {
		err := connect(ctx, t.addr)
		if err == nil {
			answered++
			continue
		}
		answered = 0
		if failures++; failures >= attempts && time.Since(began) >= limit || ctx.Err() != nil {
			return fmt.Errorf("connect to the canary at %s (%s): %w", t.addr, t.service, err)
		}
		time.Sleep(probeInterval)
	}
	return nil
}

// connect connects once and checks the greeting.
func connect(ctx context.Context, addr netip.AddrPort) error {
	conn, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "tcp", addr.String())
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(answerTimeout))
	text, err := bufio.NewReader(io.LimitReader(conn, int64(len(greeting)))).ReadString('\n')
	if err == nil && text != greeting {
		err = fmt.Errorf("another program answered: %q", text)
	}
	return err
}
