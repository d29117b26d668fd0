// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/sdk"
)

// A destination that leaves gets weight 0 and keeps its connections. Nothing remembers it
// but the kernel: whatever has weight 0 and is not wanted is being drained, also in
// a process that starts anew.

// draining reports whether some destination of at waits for its last connection.
func (o *objects) draining(at serviceKey) bool {
	c, _ := o.owner(at)
	for dest, weight := range o.have.services[at].dests {
		if weight == 0 && !c.value.wants(dest) {
			return true
		}
	}
	return false
}

// reap removes the destinations that have had their last connection. Only virtual services
// that have such are read.
func (f *family) reap() error {
	for at := range f.objects.have.services {
		if !f.objects.draining(at) {
			continue
		}
		if err := f.reapAt(at); err != nil {
			return err
		}
	}
	return nil
}

func (f *family) reapAt(at serviceKey) error {
	loads, _, err := f.kernel.Loads(at)
	if err != nil {
		return err
	}
	c, _ := f.objects.owner(at)
	for dest, l := range loads {
		if l.weight > 0 || l.active+l.inactive > 0 || c.value.wants(dest) {
			continue
		}
		s := step{verb: removeDest, service: at, dest: dest}
		if err := f.kernel.do(s); err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
		f.objects.done(s)
	}
	return nil
}

// busy is what Standby must not take away: connections that began while the role was
// another need their virtual service, its address on the node, and the rules that steady them.
type busy struct {
	services map[serviceKey]bool
	addrs    map[netip.Addr]bool // on our device
}

// seeBusy finds what still has connections, and reports whether anything has them no more. The
// next plan takes that away.
func (f *family) seeBusy() (idle bool, err error) {
	all, err := f.loads()
	if err != nil {
		return false, err
	}
	now := busy{services: make(map[serviceKey]bool), addrs: make(map[netip.Addr]bool)}
	for at, loads := range all {
		if slices.ContainsFunc(slices.Collect(maps.Values(loads)), func(l load) bool { return l.active+l.inactive > 0 }) {
			now.services[at] = true
			f.objects.serve(at, now.addrs)
		}
	}
	return f.objects.setBusy(now), nil
}

// serve notes the addresses by which a virtual service is reached.
func (o *objects) serve(at serviceKey, addrs map[netip.Addr]bool) {
	if at.mark == 0 {
		addrs[at.addr.Addr()] = true
		return
	}
	c, _ := o.owner(at)
	for _, vip := range o.desired[c.name].vips {
		addrs[vip] = true
	}
}

// setBusy takes note of what is busy now, touches what was and is no more, and reports whether
// there is such.
func (o *objects) setBusy(now busy) (idle bool) {
	for at := range o.busy.services {
		if !now.services[at] {
			o.touched.services[at], idle = true, true
		}
	}
	for addr := range o.busy.addrs {
		if !now.addrs[addr] {
			o.touched.vips[addr], idle = true, true
		}
	}
	o.busy = now
	return idle
}

// Flows are the connections of the virtual services. Those that have been closed, and wait for
// their time to be over, are not counted; but for the first time, when some of them may be
// just beginning.
func (f *family) Flows(_ map[sdk.Name]sdk.Service, fresh bool) (n int, err error) {
	all, err := f.loads()
	for _, loads := range all {
		for _, l := range loads {
			if n += l.active; fresh {
				n += l.inactive
			}
		}
	}
	return n, err
}

// loads are what the virtual services have to do.
func (f *family) loads() (table, error) {
	all := make(table)
	if len(f.objects.have.services) == 0 {
		return all, nil
	}
	listed, err := f.kernel.Table()
	if err != nil {
		return nil, err
	}
	for at := range f.objects.have.services {
		loads, there := listed[at]
		if !there {
			if loads, _, err = f.kernel.Loads(at); err != nil {
				return nil, err
			}
		}
		all[at] = loads
	}
	return all, nil
}

// A table is what the destinations of all virtual services have to do. By messages the kernel
// lists the destinations of one virtual service only, which takes seconds where there are many.
type table map[serviceKey]map[netip.AddrPort]load

// protocolOf is the protocol that the kernel calls name, if we serve it.
func protocolOf(name string) sdk.Protocol { return iptables.ProtocolCalled(strings.ToLower(name)) }

// readTable reads /proc/net/ip_vs:
//
//	TCP  AC1E0029:0050 rr persistent 10800 FFFFFFFF
//	  -> 0AB40001:1F90      Masq    1      0          0
//
// Virtual servers of marks are left out: of those it does not say in which family.
func readTable(r io.Reader) (table, error) {
	all := make(table)
	var dests map[netip.AddrPort]load // nil: they are passed over
	for lines := bufio.NewScanner(r); ; {
		if !lines.Scan() {
			return all, lines.Err()
		}
		words := strings.Fields(lines.Text())
		if len(words) < 2 {
			continue
		}
		protocol := protocolOf(words[0])
		switch {
		case protocol != 0:
			at, err := hexPair(words[1])
			if err != nil {
				return nil, err
			}
			dests = make(map[netip.AddrPort]load)
			all[serviceKey{family: sdk.FamilyOf(at.Addr()), protocol: protocol, addr: at}] = dests
		case words[0] != "->":
			dests = nil
		case dests != nil:
			dest, l, err := destLine(words)
			if err != nil {
				return nil, err
			}
			dests[dest] = l
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
