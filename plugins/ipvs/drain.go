// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"fmt"
	"slices"

	"github.com/pointsman/pointsman/sdk"
)

// A real that leaves gets weight 0 and keeps its connections. Nothing remembers it
// but the kernel: whatever has weight 0 and is not wanted is being drained, also in
// a process that starts anew.

// draining reports whether some real of at waits for its last connection.
func (b *book) draining(at server) bool {
	c, _ := b.places[at].first()
	for real, weight := range b.have.servers[at].reals {
		if weight == 0 && !slices.Contains(c.place.reals, real) {
			return true
		}
	}
	return false
}

// reap removes the reals that have had their last connection. Only virtual servers
// that have such are read.
func (p *plugin) reap() error {
	for _, s := range p.sides {
		for at := range s.book.have.servers {
			if !s.book.draining(at) {
				continue
			}
			if err := s.reapAt(at); err != nil {
				s.known = false
				return err
			}
		}
	}
	return nil
}

func (s *side) reapAt(at server) error {
	loads, _, err := s.kernel.Loads(at)
	if err != nil {
		return err
	}
	c, _ := s.book.places[at].first()
	for real, l := range loads {
		if l.weight > 0 || l.active+l.inactive > 0 || slices.Contains(c.place.reals, real) {
			continue
		}
		if err := s.kernel.RemoveReal(at, real); err != nil {
			return fmt.Errorf("remove real %s on %s: %w", real, at, err)
		}
		s.book.done(step{verb: removeReal, server: at, real: real})
	}
	return nil
}

// countFlows says how many connections are left, while another dataplane takes the
// new ones. Those that have been closed, and wait for their time to be over, are not
// counted.
func (p *plugin) countFlows() error {
	n, err := p.flows()
	if err != nil {
		return err
	}
	p.status.Tell(func(r *sdk.Report) { r.Flows = n })
	return nil
}

// flows is how many connections there are.
func (p *plugin) flows() (int, error) {
	all, err := p.kernel.Table()
	if err != nil {
		return 0, err
	}
	n := 0
	for _, s := range p.sides {
		for at := range s.book.have.servers {
			loads, there := all[at]
			if !there {
				if loads, _, err = s.kernel.Loads(at); err != nil {
					return 0, err
				}
			}
			for _, l := range loads {
				n += l.active
			}
		}
	}
	return n, nil
}
