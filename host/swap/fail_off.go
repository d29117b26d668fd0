// SPDX-License-Identifier: Apache-2.0

//go:build !failpoints || !unix

package swap

// fail returns where tests make a swap go wrong, in binaries built with the tag
// failpoints. In all others it does nothing.
func fail(Stage, Action) error { return nil }
