// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package launch

// executed returns the path to execute. Only Linux runs an open file.
func (b *Binary) executed() string { return b.path }
