// SPDX-License-Identifier: Apache-2.0

package trace

import "errors"

// socket is the match of that name: whether a socket of the node takes the packet. Its other options are not
// known; a rule with one is not understood where there is a socket.
func (p *parser) socket() error {
	p.next()
	wildcards := len(p.words) > 0 && p.words[0] == "--nowildcard" // it means that those count too
	if wildcards {
		p.next()
	}
	return p.when(func(w *walk) bool {
		if w.tracer.Socket == nil {
			w.failed = errors.New("the tracer does not see the node's sockets")
			return false
		}
		at := w.packet
		at.To = w.to
		has, err := w.tracer.Socket(at, wildcards)
		if err != nil {
			w.failed = err
		}
		return has
	})
}
