// SPDX-License-Identifier: Apache-2.0

//go:build !failpoints || !unix

package plane

// Fail is the place where tests inject faults, in binaries built with the tag failpoints. In
// all other binaries it does nothing. A point is a stage and an action of a swap, such as
// "cutting/retire".
func Fail(point string) error { return nil }
