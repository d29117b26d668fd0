// SPDX-License-Identifier: Apache-2.0

// Package examples has the sources of example plugins. `pointsman plugin new` copies them, so
// the code that it writes is built and tested here.
package examples

import "embed"

// Relay is the folder relay, a plugin with its test.
//
//go:embed relay
var Relay embed.FS
