// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package doctor

// Examine has no checks for this system.
func (n Node) Examine() []Finding { return nil }
