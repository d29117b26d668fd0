// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"testing"

	"github.com/pointsman/pointsman/sdk/sdktest"
)

// TestConforms tests the dataplane against the contract. Each check is a subtest. Packets are sent
// on 127.0.0.0/8, so it needs no root.
func TestConforms(t *testing.T) {
	sdktest.Conform(t, sdktest.InProcess(description, newDataplane))
}
