// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package sdktest

// cannotSend reports whether err is this machine's, and no packet was sent.
func cannotSend(error) bool { return false }
