// SPDX-License-Identifier: Apache-2.0

package iptables

// A Generation is another one when tables have been changed: with nft always, with legacy
// when one has another size. To ask for it costs the same however big they are.
type Generation struct {
	generation uint32
	sizes      [3]Size
}
