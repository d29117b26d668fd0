// SPDX-License-Identifier: Apache-2.0

package descriptors

// Connections returns how many connections a listener may hold: most, or a tenth of all descriptors if that is
// less, so that enough are left to start a plugin.
func Connections(most int) int { return max(4, min(most, Limit()/10)) }
