// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package descriptors

// Limit returns a typical limit, because this system does not report one.
func Limit() int { return 1 << 16 }
