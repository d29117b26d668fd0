// SPDX-License-Identifier: Apache-2.0

package nftnl

import (
	"context"
	"errors"
	"testing"
)

// TestKernelChangedWhileListed: if another process removes rules during a listing, the kernel reports this only at the
// end of the dump. The listing then fails and does not return a part as the whole.
func TestKernelChangedWhileListed(t *testing.T) {
	c, other := dial(t), dial(t)
	writeSamples(t, c)
	const many = 2000 // more than fit one message of the kernel
	b := NewBatch(IPv4, "ours")
	b.NewChain("long", nil)
	for range many {
		b.NewRule("long", Do(Drop))
	}
	send(t, c, b)
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
