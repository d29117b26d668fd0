// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package frame

import "time"

// cpuTime returns 0: the CPU time is unknown.
func cpuTime() time.Duration { return 0 }
