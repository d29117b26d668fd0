// SPDX-License-Identifier: Apache-2.0

package wire

// Major is the version of the wire that this sdk speaks: pointsman.dataplane.v1.
// A change that an older end would misunderstand makes a new one; everything else
// is a new field.
const Major uint32 = 1

// Majors returns those that a host of this version speaks: the newest, and the one
// before it once there is one. A plugin speaks Major only.
func Majors() []uint32 { return []uint32{Major} }
