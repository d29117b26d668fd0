// SPDX-License-Identifier: Apache-2.0

// Package examples has the sources of plugins to begin one's own from, so that `pointsman plugin new`
// writes what is built and tested here.
package examples

import "embed"

// Relay is a plugin's folder, relay, with its test.
//
//go:embed relay
var Relay embed.FS
