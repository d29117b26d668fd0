// SPDX-License-Identifier: Apache-2.0

// Package pipe listens on and connects to named pipes of Windows. They replace unix sockets there,
// such as the admin socket.
//
// A pipe accepts connections of this process's user, administrators and the system, from this
// machine only. Any user may create a pipe with any free name, so Listen refuses a name that is in
// use, and Dial refuses a pipe with another owner.
package pipe

import "strings"

// Prefix is the beginning of every pipe's name.
const Prefix = `\\.\pipe\`

// IsPath reports whether path is the name of a pipe: Prefix and at least one character.
func IsPath(path string) bool {
	name, ok := strings.CutPrefix(strings.ToLower(path), Prefix)
	return ok && name != ""
}
