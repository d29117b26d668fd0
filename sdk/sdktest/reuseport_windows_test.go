// SPDX-License-Identifier: Apache-2.0

package sdktest

import "syscall"

// reusePort is nothing here: the tests that listen twice need Linux.
func reusePort(_, _ string, _ syscall.RawConn) error { return nil }
