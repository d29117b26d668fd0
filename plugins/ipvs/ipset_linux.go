// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/sdk"
)

// ipset are the sets, by netlink where there are few entries, and by the program
// where there are many.
type ipset struct {
	hold *os.File // handed to the program: the writer's lock lasts until it is done
}

// Hold has the program keep a file open.
func (i *ipset) Hold(file *os.File) { i.hold = file }

func (i *ipset) Sets(ctx context.Context) (map[sdk.Family]setsOf, error) {
	out, err := i.run(ctx, "", "save")
	if err != nil {
		return nil, err
	}
	return readSets(out)
}

func (i *ipset) Restore(ctx context.Context, lines string) error {
	_, err := i.run(ctx, lines, "restore", "-exist")
	return err
}

// run runs the program. When ctx ended the error says so.
func (i *ipset) run(ctx context.Context, stdin string, args ...string) ([]byte, error) {
	var out, answers bytes.Buffer
	cmd := iptables.Command(ctx, i.hold, "ipset", args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &answers
	err := cmd.Run()
	if ctx.Err() != nil {
		return nil, errors.Join(ctx.Err(), err)
	}
	if err != nil {
		return nil, fmt.Errorf("ipset %s: %w: %s", args[0], err, strings.TrimSpace(answers.String()))
	}
	return out.Bytes(), nil
}

// One entry of a set, as a message to the kernel. The library's own would have every
// port come with a protocol, which sets of ports refuse, and knows no marks.

// request is a message about one set.
func request(command int, s set, f sdk.Family) *nl.NetlinkRequest {
	r := nl.NewNetlinkRequest(command|unix.NFNL_SUBSYS_IPSET<<8, unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	r.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_INET, Version: nl.NFNETLINK_V0})
	r.AddData(nl.NewRtAttr(nl.IPSET_ATTR_PROTOCOL, nl.Uint8Attr(nl.IPSET_PROTOCOL)))
	r.AddData(nl.NewRtAttr(nl.IPSET_ATTR_SETNAME, nl.ZeroTerminated(s.in(f))))
	return r
}

// ask sends a command about one entry.
func ask(command int, e entry, n note) error {
	r := request(command, e.set, e.family)
	r.AddData(member(e, n))
	_, err := r.Execute(unix.NETLINK_NETFILTER, 0)
	if code := unix.Errno(0); errors.As(err, &code) && code >= nl.IPSET_ERR_PRIVATE {
		return nl.IPSetError(uintptr(code))
	}
	return err
}

// member is an entry and its note as attributes.
func member(e entry, n note) *nl.RtAttr {
	data := nl.NewRtAttr(nl.IPSET_ATTR_DATA|unix.NLA_F_NESTED, nil)
	if e.addr.IsValid() {
		data.AddChild(ip(nl.IPSET_ATTR_IP, e.addr))
	}
	if e.protocol != 0 {
		data.AddChild(nl.NewRtAttr(nl.IPSET_ATTR_PROTO, nl.Uint8Attr(uint8(number(e.protocol)))))
	}
	if sets[e.set].form != formAddr {
		data.AddChild(nl.NewRtAttr(nl.IPSET_ATTR_PORT|unix.NLA_F_NET_BYTEORDER, binary.BigEndian.AppendUint16(nil, e.port)))
	}
	if e.from.IsValid() {
		data.AddChild(ip(nl.IPSET_ATTR_IP2, e.from.Addr()))
	}
	if sets[e.set].form == formSources {
		data.AddChild(nl.NewRtAttr(nl.IPSET_ATTR_CIDR2, nl.Uint8Attr(uint8(e.from.Bits()))))
	}
	if n.comment != "" {
		data.AddChild(nl.NewRtAttr(nl.IPSET_ATTR_COMMENT, nl.ZeroTerminated(n.comment)))
	}
	if n.mark != 0 { // with a mask of all bits
		data.AddChild(nl.NewRtAttr(nl.IPSET_ATTR_SKBMARK|unix.NLA_F_NET_BYTEORDER, binary.BigEndian.AppendUint64(nil, uint64(n.mark)<<32|0xffffffff)))
	}
	data.AddChild(&nl.Uint32Attribute{Type: nl.IPSET_ATTR_LINENO | unix.NLA_F_NET_BYTEORDER})
	return data
}

func ip(kind int, a netip.Addr) *nl.RtAttr {
	in := nl.IPSET_ATTR_IPADDR_IPV4
	if a.Is6() {
		in = nl.IPSET_ATTR_IPADDR_IPV6
	}
	nested := nl.NewRtAttr(kind|unix.NLA_F_NESTED, nil)
	nested.AddChild(nl.NewRtAttr(in|unix.NLA_F_NET_BYTEORDER, a.AsSlice()))
	return nested
}

// Add adds an entry, or changes its note.
func (i *ipset) Add(e entry, n note) error {
	if err := ask(nl.IPSET_CMD_ADD, e, n); err != nil {
		return fmt.Errorf("add %s to %s: %w", e, e.set.in(e.family), err)
	}
	return nil
}

// Remove removes an entry, if it is there.
func (i *ipset) Remove(e entry) error {
	if err := ask(nl.IPSET_CMD_DEL, e, note{}); err != nil && !errors.Is(err, nl.IPSetError(nl.IPSET_ERR_EXIST)) {
		return fmt.Errorf("remove %s from %s: %w", e, e.set.in(e.family), err)
	}
	return nil
}

// Has reports whether an entry is there.
func (i *ipset) Has(e entry) (bool, error) {
	err := ask(nl.IPSET_CMD_TEST, e, note{})
	if errors.Is(err, nl.IPSetError(nl.IPSET_ERR_EXIST)) {
		return false, nil
	}
	return err == nil, err
}

// Count is how many entries a set has, or less than none where the kernel, older than
// 4.9, does not say. It is told with a list of the set, from which the entries may be
// left out.
func (i *ipset) Count(s set, f sdk.Family) (int, error) {
	const withoutEntries = 1 << 2 // IPSET_FLAG_LIST_HEADER
	r := request(nl.IPSET_CMD_LIST, s, f)
	r.Flags |= unix.NLM_F_DUMP
	r.AddData(&nl.Uint32Attribute{Type: nl.IPSET_ATTR_FLAGS | unix.NLA_F_NET_BYTEORDER, Value: withoutEntries})
	messages, err := r.Execute(unix.NETLINK_NETFILTER, 0)
	if err != nil {
		return 0, fmt.Errorf("count the entries of %s: %w", s.in(f), err)
	}
	count := -1
	for _, message := range messages { // to the end: what parses attributes waits until each was taken
		for a := range nl.ParseAttributes(message[nl.SizeofNfgenmsg:]) {
			if a.Type != nl.IPSET_ATTR_DATA|nl.NLA_F_NESTED {
				continue
			}
			for b := range nl.ParseAttributes(a.Value) {
				if b.Type == nl.IPSET_ATTR_ELEMENTS|nl.NLA_F_NET_BYTEORDER {
					count = int(b.Uint32())
				}
			}
		}
	}
	return count, nil
}
