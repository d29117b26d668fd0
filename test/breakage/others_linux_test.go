// SPDX-License-Identifier: Apache-2.0

package breakage

// ofOthers are those of other programs on the node.
var ofOthers = []fault{}
