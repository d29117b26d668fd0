// SPDX-License-Identifier: Apache-2.0

package nftnl

import (
	"context"
	"errors"
	"testing"
)

const many = 5000 // rules are more than fit the socket's buffer

// writeLongChain creates the table "ours" with a long chain.
func writeLongChain(t *testing.T, c *Conn) {
	writeSamples(t, c)
	b := NewBatch(IPv4, "ours")
	b.NewChain("long", nil)
	for range many {
		b.NewRule("long", Do(Drop))
	}
	send(t, c, b)
}

// TestKernelChangedWhileListed: if another process removes rules during a listing, the kernel reports this only at the
// end of the dump. The listing then fails and does not return a part as the whole.
func TestKernelChangedWhileListed(t *testing.T) {
	c, other := dial(t), dial(t)
	writeLongChain(t, c)
	rules := 0
	err := c.ask(t.Context(), getRule, dump, IPv4, []string{text(1, "ours"), text(2, "long")}, func([]byte) {
		if rules++; rules == 1 {
			b := NewBatch(IPv4, "ours")
			b.FlushChain("long")
			send(t, other, b)
		}
	})
	if rules >= many || !errors.Is(err, errChanged) {
		t.Errorf("%d of %d rules were listed: %v", rules, many, err)
	}
}

// TestKernelListAbandoned: if the context of a call ends during a listing, the next listing on the same Conn is complete.
func TestKernelListAbandoned(t *testing.T) {
	c := dial(t)
	writeLongChain(t, c)
	for range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		err := c.ask(ctx, getRule, dump, IPv4, []string{text(1, "ours"), text(2, "long")}, func([]byte) { cancel() })
		rules, next := c.List(IPv4, "ours").Rules(t.Context(), "long")
		if next != nil || len(rules["long"]) != many {
			t.Errorf("after %v, %d of %d rules are listed: %v", err, len(rules["long"]), many, next)
		}
	}
}

// TestUndisturbed: a listing is repeated until the rule set does not change meanwhile, or until the context ends.
func TestUndisturbed(t *testing.T) {
	tries := 0
	if err := undisturbed(t.Context(), func() error {
		if tries++; tries < 60 {
			return errChanged
		}
		return nil
	}); err != nil || tries != 60 {
		t.Errorf("after %d tries: %v", tries, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := undisturbed(ctx, func() error { return errChanged }); !errors.Is(err, errChanged) {
		t.Errorf("with a canceled context: %v", err)
	}
}
