// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"runtime/debug"
)

// thrift has Go collect garbage twice as often as it would, in the host and in the
// plugins, which inherit GOGC. A node's memory is there for its pods; a first Full
// takes a quarter less of it, and a change costs no more than before. Where
// GOGC is set already, it stays.
func thrift() {
	if _, set := os.LookupEnv("GOGC"); set {
		return
	}
	debug.SetGCPercent(50)
	_ = os.Setenv("GOGC", "50") // with a constant name it cannot fail
}
