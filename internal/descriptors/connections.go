// SPDX-License-Identifier: Apache-2.0

package descriptors

// Connections returns how many connections a listener may hold: most, and a tenth of all descriptors where that
// is less, so that callers leave this process enough to start a plugin.
func Connections(most int) int { return max(4, min(most, Limit()/10)) }
