// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"cmp"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/sdk"
)

// An entry is one member of a set. The form of the set says which fields it has.
type entry struct {
	set      set
	family   sdk.Family
	addr     netip.Addr
	protocol sdk.Protocol
	port     uint16
	from     netip.Prefix // with formSources: the range; with formAddrPortIP: the address
}

// A note is what the kernel keeps beside an entry.
type note struct {
	comment string // the Service's name, for people and for a process that starts anew
	mark    uint32 // what the packet is marked with
}

// String is the entry as ipset writes it: "10.0.0.1,tcp:80".
func (e entry) String() string {
	switch sets[e.set].form {
	case formPort:
		return strconv.Itoa(int(e.port))
	case formAddr:
		return e.addr.String()
	case formAddrPort:
		return fmt.Sprintf("%s,%s:%d", e.addr, e.protocol, e.port)
	case formAddrPortIP:
		return fmt.Sprintf("%s,%s:%d,%s", e.addr, e.protocol, e.port, e.from.Addr())
	}
	from := e.from.String()
	if e.from.IsSingleIP() {
		from = e.from.Addr().String()
	}
	return fmt.Sprintf("%s,%s:%d,%s", e.addr, e.protocol, e.port, from)
}

// command is the line with which ipset's restore adds the entry, or changes its note.
func (e entry) command(n note) string {
	line := "add -exist " + e.set.in(e.family) + " " + e.String()
	if n.comment != "" {
		line += ` comment "` + n.comment + `"`
	}
	if n.mark != 0 {
		line += fmt.Sprintf(" skbmark %#x", n.mark)
	}
	return line
}

// parseEntry reads what String wrote.
func parseEntry(s set, f sdk.Family, text string) (entry, error) {
	e := entry{set: s, family: f}
	parts := strings.Split(text, ",")
	var err error
	switch sets[s].form {
	case formPort:
		return e, e.setPort(text)
	case formAddr:
		e.addr, err = netip.ParseAddr(text)
		return e, err
	}
	if len(parts) < 2 {
		return e, fmt.Errorf("%q is no entry of %s", text, s.in(f))
	}
	if e.addr, err = netip.ParseAddr(parts[0]); err != nil {
		return e, err
	}
	protocol, port, _ := strings.Cut(parts[1], ":")
	e.protocol = iptables.ProtocolCalled(protocol)
	if err := e.setPort(port); err != nil {
		return e, err
	}
	if len(parts) == 3 {
		return e, e.setFrom(parts[2])
	}
	return e, nil
}

func (e *entry) setPort(text string) error {
	port, err := strconv.ParseUint(text, 10, 16)
	e.port = uint16(port)
	return err
}

func (e *entry) setFrom(text string) (err error) {
	if strings.Contains(text, "/") {
		e.from, err = netip.ParsePrefix(text)
		return err
	}
	addr, err := netip.ParseAddr(text)
	e.from = single(addr)
	return err
}

func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

func compareEntries(a, b entry) int {
	return cmp.Or(
		cmp.Compare(a.set, b.set),
		cmp.Compare(a.family, b.family),
		a.addr.Compare(b.addr),
		cmp.Compare(a.protocol, b.protocol),
		cmp.Compare(a.port, b.port),
		sdk.ComparePrefix(a.from, b.from),
	)
}
