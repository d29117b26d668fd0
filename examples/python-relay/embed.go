// SPDX-License-Identifier: Apache-2.0

// Package pythonrelay has the sources of the plugin in Python, so that `pointsman plugin new` writes
// the program that the tests of this repository run. It has no Go code.
package pythonrelay

import "embed"

// Sources are the program and the message that it needs besides the protocol's.
//
//go:embed pointsman-dataplane-pyrelay status.proto
var Sources embed.FS
