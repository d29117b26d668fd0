// SPDX-License-Identifier: Apache-2.0

// Package test tests what only the whole system shows: which package may import which, whether the pages agree with the
// code, and what the host and the userspace plugin do together without root. It must not touch the network of the
// machine beyond 127.0.0.0/8. Start reading at system_linux_test.go.
package test
