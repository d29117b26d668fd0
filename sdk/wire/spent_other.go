// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package wire

import "time"

// Spent is not known on this system.
func Spent(int) (ran, queued time.Duration) { return 0, 0 }
