// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"context"
	"testing"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest"
)

// TestConforms runs the conformance suite against a kernel in memory: every scenario, and every check of the contract
// that does not need a real node.
func TestConforms(t *testing.T) {
	f := newFake(t)
	dir := t.TempDir()
	s := sdktest.InProcess(Description, func() sdk.Dataplane { return newPlugin(dir, f.edges()) })
	s.Testbed = &fakeTestbed{fake: f}
	s.Disturb = func(context.Context) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		clear(f.services)
		return nil
	}
	sdktest.Conform(t, s)
}
