// SPDX-License-Identifier: Apache-2.0

// Package configs embeds the files that examples/demo runs on. All files here are for people:
// a host's settings for each way of use.
package configs

import "embed"

// Demo has demo.yaml, a host's config, and demo, a folder with the manifests of two Services.
//
//go:embed demo.yaml demo
var Demo embed.FS
