// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package supervise

// mostDescriptors returns how many this process may hold, as far as is known.
func mostDescriptors() int { return 1 << 16 }

// exhausted reports whether err says that this process, or the machine, has no descriptor or
// no memory left.
func exhausted(error) bool { return false }
