// SPDX-License-Identifier: Apache-2.0

package hooks

import (
	"context"
	"errors"
	"fmt"
	"os/exec"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/pointsman/pointsman/plugins/internal/ipset"
	"github.com/pointsman/pointsman/plugins/internal/trace"
	"github.com/pointsman/pointsman/sdk"
)

// theirSets are the kernel's own.
var theirSets = keeper{header: headerOf, members: setsIn, has: has}

// member asks the kernel whether a set has the parts of a packet that a rule names. An error: the set is
// of a kind that is not looked up, or the kernel could not be asked.
func member(set, parts string, p trace.Packet) (bool, error) { return theirSets.member(set, parts, p) }

func has(set string, l lookup) (bool, error) {
	protocols := map[string]uint8{"tcp": unix.IPPROTO_TCP, "udp": unix.IPPROTO_UDP, "sctp": unix.IPPROTO_SCTP}
	return ipset.Has(set, ipset.Entry{Addr: l.addr, Protocol: protocols[l.protocol], Port: l.port, HasPort: l.hasPort, Second: l.second})
}

// marksBy has ipset print a set whose entries have marks, if it has the packet.
func marksBy(ctx context.Context) func(set, parts string, p trace.Packet) ([2]uint32, bool, error) {
	return func(set, parts string, p trace.Packet) (bits [2]uint32, in bool, err error) {
		in, err = member(set, parts, p)
		if !in || err != nil {
			return bits, false, err
		}
		h, err := headerOf(set)
		if err != nil || h.kind != "hash:ip,port" {
			return bits, false, fmt.Errorf("the tracer does not see the marks of the set %s, which is of %s", set, h.kind)
		}
		l, _, err := h.lookedUp(set, parts, p)
		if err != nil {
			return bits, false, err
		}
		out, err := exec.CommandContext(ctx, "ipset", "save", set).Output()
		if err != nil {
			return bits, false, fmt.Errorf("ipset save %s: %w", set, err)
		}
		if bits, in = markIn(string(out), l); !in {
			return bits, false, fmt.Errorf("ipset does not show %+v in the set %s, which has it", l, set)
		}
		return bits, true, nil
	}
}

// headerOf is what the kernel says of a set. To be asked whether a set has an entry of another
// kind than its own it answers that it has not.
func headerOf(set string) (h header, err error) {
	answers, err := ipset.Request(nl.IPSET_CMD_HEADER, set).Execute(unix.NETLINK_NETFILTER, 0)
	if err != nil {
		return h, err
	}
	for _, a := range answers {
		attributes, err := nl.ParseRouteAttr(a[min(len(a), nl.SizeofNfgenmsg):])
		if err != nil {
			return h, err
		}
		for _, is := range attributes {
			switch is.Attr.Type {
			case nl.IPSET_ATTR_TYPENAME:
				h.kind = nl.BytesToString(is.Value)
			case nl.IPSET_ATTR_FAMILY:
				h.family = map[byte]sdk.Family{unix.AF_INET: sdk.IPv4, unix.AF_INET6: sdk.IPv6}[is.Value[0]]
			}
		}
	}
	if h.kind == "" {
		return h, errors.New("the kernel does not say what kind it is of")
	}
	return h, nil
}

// setsIn are the sets of a list of sets.
func setsIn(list string) (sets []string, err error) {
	answers, err := ipset.Request(nl.IPSET_CMD_LIST, list).Execute(unix.NETLINK_NETFILTER, 0)
	if err != nil {
		return nil, err
	}
	for _, a := range answers {
		if err := within(a[min(len(a), nl.SizeofNfgenmsg):], nl.IPSET_ATTR_ADT, func(entries []byte) error {
			return within(entries, nl.IPSET_ATTR_DATA, func(entry []byte) error {
				return within(entry, nl.IPSET_ATTR_NAME, func(name []byte) error {
					sets = append(sets, nl.BytesToString(name))
					return nil
				})
			})
		}); err != nil {
			return nil, err
		}
	}
	return sets, nil
}

// within calls do with each attribute of a kind.
func within(attributes []byte, kind uint16, do func([]byte) error) error {
	all, err := nl.ParseRouteAttr(attributes)
	for _, a := range all {
		if a.Attr.Type&nl.NLA_TYPE_MASK == kind {
			err = errors.Join(err, do(a.Value))
		}
	}
	return err
}
