// SPDX-License-Identifier: Apache-2.0

package netns

import "sync/atomic"

// The ports that callers call from: above those of node ports.
const firstPort, lastPort = 33000, 60999

// ports gives each caller another port, until all have had their turn. A port that was
// used not long ago, for the same destination, has the kernel send the new connection
// where it sent that one, which it tracks for minutes.
type ports struct{ given atomic.Uint32 }

func (p *ports) next() uint16 {
	return uint16(firstPort + (p.given.Add(1)-1)%(lastPort-firstPort+1))
}
