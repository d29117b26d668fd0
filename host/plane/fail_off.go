// SPDX-License-Identifier: Apache-2.0

//go:build !failpoints || !unix

package plane

// Fail returns where tests make a step go wrong, in binaries built with the tag failpoints. In all others it does
// nothing. A point is a stage and an action of a swap, such as "cutting/retire".
func Fail(point string) error { return nil }
