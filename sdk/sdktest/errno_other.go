// SPDX-License-Identifier: Apache-2.0

//go:build !windows

package sdktest

import "syscall"

// errInUse says that another socket has an address.
const errInUse = syscall.EADDRINUSE

// ownErrors are of this machine: where one comes no packet was sent.
var ownErrors = []error{syscall.EADDRNOTAVAIL, errInUse, syscall.EMFILE, syscall.ENFILE}
