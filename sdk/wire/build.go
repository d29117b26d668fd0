// SPDX-License-Identifier: Apache-2.0

package wire

import "runtime/debug"

// Build returns what the Go toolchain wrote into this program of where it comes from: a
// tag, or a commit with its time, and "+dirty" if the files were not those of the
// commit. It is "(devel)" where the toolchain did not look.
func Build() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "(devel)"
	}
	return info.Main.Version
}
