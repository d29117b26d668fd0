// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"bufio"
	"fmt"
	"io"
	"iter"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
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
				return l.active+l.inactive == 0 && contains(waiting, dest)
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
			if l.active+l.inactive == 0 {
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
			if n += l.active; fresh {
				n += l.inactive
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

// A table is what the destinations of all virtual services have to do. By messages the kernel
// lists the destinations of one virtual service only, which takes seconds where there are many. Nothing else lists destinations.
type table map[serviceKey]map[netip.AddrPort]load

// protocolOf is the protocol that the kernel calls name, if we serve it.
func protocolOf(name string) sdk.Protocol { return iptables.ProtocolCalled(strings.ToLower(name)) }

// readTable reads /proc/net/ip_vs:
//
//	TCP  AC1E0029:0050 rr persistent 10800 FFFFFFFF
//	  -> 0AB40001:1F90      Masq    1      0          0
//
//	FWM  6E000001 rr
//
// Of a virtual server of a mark it does not say in which family it is: its destinations do.
func readTable(r io.Reader) (table, error) {
	all := make(table)
	var at serviceKey // zero: it is passed over
	for lines := bufio.NewScanner(r); ; {
		if !lines.Scan() {
			return all, lines.Err()
		}
		words := strings.Fields(lines.Text())
		if len(words) < 2 {
			continue
		}
		switch protocol := protocolOf(words[0]); {
		case protocol != 0:
			addr, err := hexPair(words[1])
			if err != nil {
				return nil, err
			}
			at = serviceKey{family: sdk.FamilyOf(addr.Addr()), protocol: protocol, addr: addr}
			all[at] = make(map[netip.AddrPort]load)
		case words[0] == "FWM":
			mark, err := strconv.ParseUint(words[1], 16, 32)
			if err != nil {
				return nil, fmt.Errorf("read a mark: %w", err)
			}
			at = serviceKey{mark: uint32(mark)}
		case words[0] != "->":
			at = serviceKey{}
		case at != serviceKey{}:
			dest, l, err := destLine(words)
			if err != nil {
				return nil, err
			}
			if at.mark != 0 {
				at.family = sdk.FamilyOf(dest.Addr())
			}
			if all[at] == nil {
				all[at] = make(map[netip.AddrPort]load)
			}
			all[at][dest] = l
		}
	}
}

// destLine reads the words of a destination: an arrow, its address, how packets get there, its
// weight, its connections, and those that are over.
func destLine(words []string) (netip.AddrPort, load, error) {
	if len(words) < 6 {
		return netip.AddrPort{}, load{}, fmt.Errorf("read a real: %q", words)
	}
	at, err := hexPair(words[1])
	if err != nil {
		return netip.AddrPort{}, load{}, err
	}
	var counts [3]int
	for i := range counts {
		if counts[i], err = strconv.Atoi(words[3+i]); err != nil {
			return netip.AddrPort{}, load{}, fmt.Errorf("read a real: %w", err)
		}
	}
	return at, load{weight: counts[0], active: counts[1], inactive: counts[2]}, nil
}

// hexPair reads an address and a port that stand together: "AC1E0029:0050", or
// "[fd00:0172:0030:0000:0000:0000:0000:0041]:0050".
func hexPair(text string) (netip.AddrPort, error) {
	i := max(0, strings.LastIndexByte(text, ':'))
	at, ok := hexAddr(strings.Trim(text[:i], "[]"), strings.TrimPrefix(text[i:], ":"))
	if !ok {
		return netip.AddrPort{}, fmt.Errorf("read an address and a port: %q", text)
	}
	return at, nil
}
