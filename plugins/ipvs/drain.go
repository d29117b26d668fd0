// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"iter"
	"net/netip"
	"slices"

	"github.com/pointsman/pointsman/plugins/internal/ipvslist"
	"github.com/pointsman/pointsman/sdk"
)

// servers yields the virtual servers that the kernel has for installed pieces.
func (f *family) servers() iter.Seq[server] {
	return func(yield func(server) bool) {
		for _, p := range f.Installed() {
			for _, s := range p.servers {
				if s.exists && !s.covered && !yield(s) {
					return
				}
			}
		}
	}
}

// reapDrained removes drained destinations that have no connection left from the desired pieces. It reports
// whether there were any.
func (f *family) reapDrained() (due bool, err error) {
	var loads table
	less := make(map[sdk.Name]*piece)
	for name, p := range f.Desired() {
		q := *p
		for i, s := range p.servers {
			waiting := s.drained()
			if len(waiting) == 0 {
				continue
			}
			if loads == nil {
				if loads, err = f.kernel.Table(); err != nil {
					return false, err
				}
			}
			idle := slices.DeleteFunc(s.state.idle.list(), func(dest netip.AddrPort) bool {
				l := loads[s.at][dest]
				return l.Active+l.Inactive == 0 && contains(waiting, dest)
			})
			if now := newDests(idle); now != s.state.idle {
				if less[name] == nil {
					q.servers, less[name] = slices.Clone(p.servers), &q
				}
				q.servers[i].state.idle = now
			}
		}
	}
	f.Reconciler.SetDesired(less) // already adapted to the role
	return len(less) > 0, nil
}

// Flows returns the number of connections of the virtual servers. Closed connections that wait for their
// timeout are counted only if fresh is set: at that time some of them may be half-open.
func (f *family) Flows(_ map[sdk.Name]sdk.Service, fresh bool) (n int, err error) {
	all, err := f.kernel.Table()
	for s := range f.servers() {
		for _, l := range all[s.at] {
			if n += l.Active; fresh {
				n += l.Inactive
			}
		}
	}
	return n, err
}

// A table has the connection counts of the destinations of all virtual servers. It is also the only list of
// destinations.
type table map[serviceKey]map[netip.AddrPort]load

func newTable(list []ipvslist.Server) table {
	all := make(table, len(list))
	for _, s := range list {
		all[serviceKey{family: s.Family(), protocol: s.Protocol, addr: s.Addr, mark: s.Mark}] = s.Dests
	}
	return all
}
