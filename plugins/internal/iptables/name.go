// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"crypto/sha256"
	"encoding/base32"
)

// Hash makes of text a part of a chain's name: always the same, 16 letters and
// digits, as kube-proxy does it.
func Hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return base32.StdEncoding.EncodeToString(sum[:])[:16]
}
