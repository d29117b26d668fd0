// SPDX-License-Identifier: Apache-2.0

//go:build !windows

package addresses

// Here is the system of this machine; nil: addresses are added on Windows alone.
func Here() System { return nil }
