// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"slices"

	"github.com/pointsman/pointsman/sdk"
)

// This file is about a process that is on trial, because its plugin failed too often.

// onTrial is the role in which it changes nothing that serves: it plans all, writes
// nothing, and lives or dies. One whose serving ended with its process anyway stands
// by.
func onTrial(d sdk.Description) sdk.Role {
	if slices.Contains(d.Limits, sdk.LimitDiesWithProcess) {
		return sdk.Standby
	}
	return sdk.Yielded
}

// prove holds the kernel to what a process on trial was told, once it has its role. One
// that does not serve that has failed again.
func (s *session) prove() {
	if _, err := s.Verify(s.ctx); err != nil {
		s.cancel(err)
		return
	}
	s.passed()
}
