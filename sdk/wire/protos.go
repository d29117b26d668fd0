// SPDX-License-Identifier: Apache-2.0

package wire

import "embed"

// Protos has the protocol's files, dataplane.proto and hello.proto, of which an author generates code
// for another language than Go.
//
//go:embed dataplane.proto hello.proto
var Protos embed.FS
