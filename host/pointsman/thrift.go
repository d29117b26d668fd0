// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"runtime/debug"
)

// thrift has Go collect the host's garbage twice as often as it would. A node's memory
// is there for its pods; a first Full takes a quarter less of it, and a change costs no
// more than before. Plugins are left alone: what they are told first is mostly garbage
// soon, they give that back at its end, and to look through everything twice as often
// took a quarter longer. Where GOGC is set already, it stays, for both.
func thrift() {
	if _, set := os.LookupEnv("GOGC"); !set {
		debug.SetGCPercent(50)
	}
}
