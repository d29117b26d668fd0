// SPDX-License-Identifier: Apache-2.0

// Package configs has what the demo runs on built into the binary, so that an installed
// pointsman shows it anywhere. The other files here are for people: a host's settings for
// each way of use.
package configs

import "embed"

// Demo is demo.yaml, a host's file, and demo, a folder with the Services.
//
//go:embed demo.yaml demo
var Demo embed.FS
