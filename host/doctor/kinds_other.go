// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package doctor

// Kinds has nothing to say: only Linux is asked.
func Kinds() map[string]string { return nil }
