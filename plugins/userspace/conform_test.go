// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"testing"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest"
)

// TestConforms runs the conformance suite without rules, with real packets on loopback addresses.
func TestConforms(t *testing.T) {
	needsLoopback(t)
	s := sdktest.InProcess(Description, func() sdk.Dataplane { return New(t.TempDir()) })
	s.Options = []byte(`{"redirect": "never", "udpIdleTimeout": "1m"}`)
	sdktest.Conform(t, s)
}
