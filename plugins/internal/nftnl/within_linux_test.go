// SPDX-License-Identifier: Apache-2.0

package nftnl

import (
	"context"
	"errors"
	"os"
	"testing"
)

// TestEndOfOneCall: if a context ends at the same time as the call that uses it, the next call, with another context,
// is not interrupted.
func TestEndOfOneCall(t *testing.T) {
	c, err := Dial()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if _, err := c.Generation(t.Context()); errors.Is(err, os.ErrPermission) {
		t.Skip("needs root: ", err)
	}
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
