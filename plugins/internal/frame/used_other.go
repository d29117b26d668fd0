// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package frame

import "time"

// used is how much of the processor this process has used so far, where that is known.
func used() time.Duration { return 0 }
