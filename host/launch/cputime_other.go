// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package launch

import "time"

// CPUTime is not known on this system.
func CPUTime(int) (ran, queued time.Duration) { return 0, 0 }
