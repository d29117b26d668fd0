// SPDX-License-Identifier: Apache-2.0

package nftnl

import (
	"context"
	"errors"
	"testing"
)

// TestKernelChangedWhileListed: rules that another process cut short while they were listed,
// which the kernel says with the end of the list alone, are not taken for all there are.
func TestKernelChangedWhileListed(t *testing.T) {
	c, other := dial(t), dial(t)
	writeSamples(t, c)
	const many = 2000 // more than the kernel lists at once
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

// TestUndisturbed: what changes many times while it is listed is listed in the end, unless there is no
// time left.
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
		t.Errorf("without time: %v", err)
	}
}
