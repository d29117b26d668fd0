// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"iter"
	"net/netip"
	"slices"

	"github.com/pointsman/pointsman/plugins/internal/ipvslist"
	"github.com/pointsman/pointsman/sdk"
)

// servers are the virtual servers that the kernel has of installed pieces, each with the addresses by which its Service is
// reached.
func (f *family) servers() iter.Seq2[server, *piece] {
	return func(yield func(server, *piece) bool) {
		for _, p := range f.Installed() {
			for _, s := range p.servers {
				if s.here && !s.covered && !yield(s, p) {
					return
				}
			}
		}
	}
}

// reap takes out of pieces the destinations that have had their last connection, and reports whether there are such.
func (f *family) reap() (due bool, err error) {
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
	f.SetDesired(less)
	return len(less) > 0, nil
}

// busy is what Standby must not take away: connections that began while the role was
// another need their virtual service, its address on the node, and the rules that steady them.
type busy struct {
	servers map[serviceKey]bool
	addrs   map[netip.Addr]bool // on our device
}

// seeBusy finds what still has connections, and reports whether anything has them no more.
func (f *family) seeBusy() (idle bool, err error) {
	all, err := f.loads()
	if err != nil {
		return false, err
	}
	now := busy{make(map[serviceKey]bool), make(map[netip.Addr]bool)}
	for s, p := range f.servers() {
		for _, l := range all[s.at] {
			if l.Active+l.Inactive == 0 {
				continue
			}
			now.servers[s.at] = true
			if s.at.mark == 0 {
				now.addrs[s.at.addr.Addr()] = true
				continue
			}
			for _, vip := range p.bound {
				now.addrs[vip] = true
			}
		}
	}
	for at := range f.busy.servers {
		idle = idle || !now.servers[at]
	}
	f.busy = now
	return idle, nil
}

// Flows are the connections of the virtual services. Those that have been closed, and wait for
// their time to be over, are not counted; but for the first time, when some of them may be
// just beginning.
func (f *family) Flows(_ map[sdk.Name]sdk.Service, fresh bool) (n int, err error) {
	all, err := f.loads()
	for s := range f.servers() {
		for _, l := range all[s.at] {
			if n += l.Active; fresh {
				n += l.Inactive
			}
		}
	}
	return n, err
}

// loads are what all virtual servers have to do; nothing, if there is none of ours.
func (f *family) loads() (table, error) {
	if _, is := f.anyServer(); !is {
		return nil, nil
	}
	return f.kernel.Table()
}

// A table is what the destinations of all virtual services have to do. Nothing else lists destinations.
type table map[serviceKey]map[netip.AddrPort]load

func newTable(list []ipvslist.Server) table {
	all := make(table, len(list))
	for _, s := range list {
		all[serviceKey{family: s.Family(), protocol: s.Protocol, addr: s.Addr, mark: s.Mark}] = s.Dests
	}
	return all
}
