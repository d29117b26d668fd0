// SPDX-License-Identifier: Apache-2.0

// Package pipe listens on and connects to named pipes of Windows, which are there what unix
// sockets are elsewhere: the way from one process of a machine to another that the system keeps
// other users out of. The admin socket is one.
//
// A pipe is open to this process's user, to administrators and to the system, and to processes
// of this machine alone. Windows lets any user make a pipe of any free name. So Listen refuses a
// name that another process has, and Dial a pipe whose owner is none of those three.
package pipe

import "strings"

// Prefix is what the name of each pipe begins with.
const Prefix = `\\.\pipe\`

// IsPath reports whether path names a pipe: Prefix, and a name of its own.
func IsPath(path string) bool {
	name, ok := strings.CutPrefix(strings.ToLower(path), Prefix)
	return ok && name != ""
}
