// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package limit

// Descriptors returns how many this process may hold, as far as is known.
func Descriptors() int { return 1 << 16 }

// Exhausted reports whether err says that this process, or the machine, has no descriptor or
// no memory left.
func Exhausted(error) bool { return false }
