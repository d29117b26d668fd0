// SPDX-License-Identifier: Apache-2.0

//go:build !windows

package userspace

// theInterfaces returns nil: only on Windows are addresses added.
func theInterfaces() interfaces { return nil }
