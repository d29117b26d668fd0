// SPDX-License-Identifier: Apache-2.0

//go:build !linux

// Package boundedtest makes files for tests that cannot be read.
package boundedtest

import "testing"

// Hung returns a folder on a file system that never answers.
func Hung(t testing.TB) (dir string, release func()) {
	t.Skip("needs Linux")
	return "", nil
}
