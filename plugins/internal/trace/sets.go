// SPDX-License-Identifier: Apache-2.0

package trace

import "fmt"

func (p *parser) set() error {
	name, parts := p.next(), p.next()
	return p.when(func(w *walk) bool {
		if ask := w.tracer.Member; ask != nil && w.tracer.Sets == nil {
			at := w.packet
			at.To = w.to
			in, err := ask(name, parts, at)
			if err != nil {
				w.failed = err
			}
			return in
		}
		_, in := w.member(name, parts)
		return in
	})
}

// member asks a set for the packet as it is by now.
func (w *walk) member(set, parts string) (uint32, bool) {
	if w.tracer.Sets == nil {
		w.failed = fmt.Errorf("the tracer does not see the set %s", set)
		return 0, false
	}
	p := w.packet
	p.To = w.to
	return w.tracer.Sets(set, parts, p)
}

// markBySet marks the packet as its entry in a set says, if it has one.
func (w *walk) markBySet(a action) {
	if ask := w.tracer.Marks; ask != nil && w.tracer.Sets == nil {
		at := w.packet
		at.To = w.to
		bits, in, err := ask(a.to, a.parts, at)
		if err != nil {
			w.failed = err
		}
		if in {
			w.mark = w.mark&^bits[1] ^ bits[0]
		}
		return
	}
	if mark, in := w.member(a.to, a.parts); in {
		w.mark = mark
	}
}
