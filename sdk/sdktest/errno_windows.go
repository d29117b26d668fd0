// SPDX-License-Identifier: Apache-2.0

package sdktest

import "golang.org/x/sys/windows"

// errInUse says that another socket has an address.
const errInUse = windows.WSAEADDRINUSE

// ownErrors are of this machine: where one comes no packet was sent.
var ownErrors = []error{windows.WSAEADDRNOTAVAIL, errInUse, windows.WSAEMFILE, windows.WSAENOBUFS}
