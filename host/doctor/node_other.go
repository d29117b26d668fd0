// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package doctor

// Examine returns nothing: there are no checks for this system.
func (n Node) Examine() []Finding { return nil }
