// SPDX-License-Identifier: Apache-2.0

package hooks

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/pointsman/pointsman/plugins/internal/ipset"
	"github.com/pointsman/pointsman/plugins/internal/oracle"
	"github.com/pointsman/pointsman/sdk"
)

// dimensions has the fields of a set's members by the type of the set, for types that can be looked up.
var dimensions = map[string][]string{
	"hash:ip": {"ip"}, "hash:net": {"ip"}, "bitmap:ip": {"ip"}, "bitmap:port": {"port"},
	"hash:ip,port": {"ip", "port"}, "hash:net,port": {"ip", "port"}, "hash:net,net": {"ip", "ip"},
	"hash:ip,port,ip": {"ip", "port", "ip"}, "hash:ip,port,net": {"ip", "port", "ip"}, "hash:net,port,net": {"ip", "port", "ip"},
}

// member asks the kernel whether a set has the parts of a packet that a rule names ("src,dst"). It returns an
// error if it cannot tell.
func member(set, parts string, p oracle.Packet) (bool, error) {
	kind, family, err := headerOf(set)
	if err != nil {
		return false, fmt.Errorf("look for the set %s: %w", set, err)
	}
	entry, may, err := entryOf(set, kind, family, parts, p)
	if !may || err != nil {
		return false, err
	}
	in, err := ipset.Has(set, entry)
	if err != nil {
		return false, fmt.Errorf("look up %[2]s in the set %[1]s: %[3]w", set, p, err)
	}
	return in, nil
}

// entryOf returns the set member for the parts of a packet, each src or dst. may is false if the kernel finds
// nothing: the rule names fewer parts than the members have, or the address is of the other IP family.
func entryOf(set, kind string, family sdk.Family, parts string, p oracle.Packet) (e ipset.Entry, may bool, err error) {
	own, known := dimensions[kind]
	words := strings.Split(parts, ",")
	switch {
	case !known:
		return e, false, fmt.Errorf("the set %s has the type %s, which is not supported", set, kind)
	case len(words) < len(own) || family != 0 && family != sdk.FamilyOf(p.To.Addr()):
		return e, false, nil
	case kind == "bitmap:port" && p.Protocol == "sctp":
		return e, false, nil
	}
	for i, dimension := range own {
		at := p.To
		switch words[i] {
		case "src":
			at = p.From
		case "dst":
		default:
			return e, false, fmt.Errorf("looking up %s in the set %s is not supported", parts, set)
		}
		switch {
		case dimension == "port" && at.Port() == 0:
			return e, false, errors.New("it depends on the client's port, which is unknown")
		case dimension == "port":
			e.Port, e.HasPort = at.Port(), true
			if kind != "bitmap:port" { // it has no protocol
				e.Protocol = map[string]uint8{"tcp": unix.IPPROTO_TCP, "udp": unix.IPPROTO_UDP, "sctp": unix.IPPROTO_SCTP}[p.Protocol]
			}
		case i == 0:
			e.Addr = at.Addr()
		default:
			e.Second = at.Addr()
		}
	}
	return e, true, nil
}

// marked returns the mark and mask that a set has for a packet. It parses the output of ipset:
//
//	add KUBE-NEAR 192.0.2.10,tcp:30080 comment "ns1/web:http" skbmark 0x6e000001
func marked(ctx context.Context, set, parts string, p oracle.Packet) (bits [2]uint32, err error) {
	at := p.To
	if parts == "src,src" {
		at = p.From
	} else if parts != "dst,dst" {
		return bits, fmt.Errorf("looking up a mark by %s is not supported", parts)
	}
	out, err := exec.CommandContext(ctx, "ipset", "save", set).Output()
	if err != nil {
		return bits, fmt.Errorf("ipset save %s: %w", set, err)
	}
	entry := fmt.Sprintf("add %s %s,%s:%d ", set, at.Addr(), p.Protocol, at.Port())
	for line := range strings.Lines(string(out)) {
		line = strings.TrimSpace(line) + " "
		if !strings.HasPrefix(line, entry) {
			continue
		}
		_, mark, has := strings.Cut(line, "skbmark ")
		if !has { // the packet keeps its mark
			return bits, nil
		}
		return oracle.ParseMark(strings.TrimSpace(mark))
	}
	return bits, fmt.Errorf("ipset shows no %sin the set %s", entry, set)
}

// headerOf returns the type of a set ("hash:ip") and the family of its addresses, if it has one. The caller
// needs them because the kernel answers a lookup with a member of another type as if the member did not exist.
func headerOf(set string) (kind string, family sdk.Family, err error) {
	answers, err := ipset.Request(nl.IPSET_CMD_HEADER, set).Execute(unix.NETLINK_NETFILTER, 0)
	for _, a := range answers {
		attributes, parseErr := nl.ParseRouteAttr(a[min(len(a), nl.SizeofNfgenmsg):])
		err = errors.Join(err, parseErr)
		for _, is := range attributes {
			switch is.Attr.Type {
			case nl.IPSET_ATTR_TYPENAME:
				kind = nl.BytesToString(is.Value)
			case nl.IPSET_ATTR_FAMILY:
				family = map[byte]sdk.Family{unix.AF_INET: sdk.IPv4, unix.AF_INET6: sdk.IPv6}[is.Value[0]]
			}
		}
	}
	return kind, family, err
}
