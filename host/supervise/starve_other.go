// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package supervise

import "time"

// spent is not known on this system.
func spent(int) (ran, queued time.Duration) { return 0, 0 }
