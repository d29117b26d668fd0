// SPDX-License-Identifier: Apache-2.0

package nftnl

import (
	"context"
	"testing"
)

// TestEndOfOneCall: if a context ends at the same time as the call that uses it, the next call, with another context,
// is not interrupted.
func TestEndOfOneCall(t *testing.T) {
	c, err := Dial()
	if err != nil {
		t.Skipf("needs root: a socket to nf_tables: %v", err)
	}
	t.Cleanup(func() { _ = c.Close() })
	for range 5000 {
		ctx, cancel := context.WithCancel(t.Context())
		if err := c.within(ctx, func() error { cancel(); return nil }); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Generation(t.Context()); err != nil {
			t.Fatalf("the next call: %v", err)
		}
	}
}
