// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package sockets

// listening is only known on Linux.
func listening() []Socket { return nil }

func owners(map[uint64]bool, []int) map[uint64]owner { return nil }
