// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pointsman/pointsman/plugins/internal/nftnl"
	"github.com/pointsman/pointsman/sdk"
)

// This file asks nft about its tables, by the kernel's netlink for netfilter: messages, what
// is in them, how they are sent and answered, and then what is asked.

// nfMessage is one message of netfilter's netlink.
func nfMessage(kind, flags uint16, family byte, resource uint16, attributes []byte) []byte {
	b := make([]byte, unix.NLMSG_HDRLEN, unix.NLMSG_HDRLEN+4+len(attributes))
	binary.NativeEndian.PutUint32(b, uint32(cap(b)))
	binary.NativeEndian.PutUint16(b[4:], kind)
	binary.NativeEndian.PutUint16(b[6:], flags)
	b = append(b, family, unix.NFNETLINK_V0)
	b = binary.BigEndian.AppendUint16(b, resource)
	return append(b, attributes...)
}

// nfgenmsg is the size of what goes before the attributes of each message; its
// first byte is the family.
const nfgenmsg = 4

// textAttribute is one attribute of a message: text, and what it is.
func textAttribute(which uint16, text string) []byte {
	b := binary.NativeEndian.AppendUint16(nil, uint16(unix.SizeofNlAttr+len(text)+1))
	b = binary.NativeEndian.AppendUint16(b, which)
	b = append(append(b, text...), 0)
	return append(b, make([]byte, -len(b)&3)...)
}

// nfproto is how netfilter calls a family.
func nfproto(f sdk.Family) byte {
	if f == sdk.IPv6 {
		return unix.NFPROTO_IPV6
	}
	return unix.NFPROTO_IPV4
}

// attribute is the text of one attribute of a message, or empty.
func attribute(data []byte, which uint16) string {
	return strings.TrimRight(string(attributeBytes(data, which)), "\x00")
}

// attributeBytes is one attribute of a message, or nothing.
func attributeBytes(data []byte, which uint16) []byte {
	for data = data[min(nfgenmsg, len(data)):]; len(data) >= unix.SizeofNlAttr; {
		size, kind := int(binary.NativeEndian.Uint16(data)), binary.NativeEndian.Uint16(data[2:])
		if size < unix.SizeofNlAttr || size > len(data) {
			return nil
		}
		if kind&^(unix.NLA_F_NESTED|unix.NLA_F_NET_BYTEORDER) == which {
			return data[unix.SizeofNlAttr:size]
		}
		data = data[min(len(data), (size+3)&^3):]
	}
	return nil
}

// sendNetfilter sends messages by a socket that waits a second for each answer, in the
// network namespace of the calling thread. The caller closes it.
func sendNetfilter(messages []byte) (fd int, err error) {
	fd, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return -1, err
	}
	if err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 1}); err == nil {
		err = unix.Sendto(fd, messages, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
	}
	if err != nil {
		_ = unix.Close(fd) // why nothing was sent says more
		return -1, err
	}
	return fd, nil
}

// receive reads one answer. A signal, such as that a child has ended, is no reason to give
// up: the kernel does not go on by itself where a socket has a timeout.
func receive(fd int, into []byte) (n int, err error) {
	for {
		n, _, err = unix.Recvfrom(fd, into, 0)
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

// askNetfilter sends messages and returns the first answer, which has a header at least.
func askNetfilter(messages []byte) ([]byte, error) {
	fd, err := sendNetfilter(messages)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	answer := make([]byte, 4096)
	n, err := receive(fd, answer)
	switch {
	case err != nil:
		return nil, err
	case n < unix.NLMSG_HDRLEN:
		return nil, unix.EPROTO
	}
	return answer[:n], refusal(answer[:n])
}

// refusal is the error that an answer is, if it is one.
func refusal(answer []byte) error {
	if len(answer) < unix.NLMSG_HDRLEN+4 || binary.NativeEndian.Uint16(answer[4:]) != unix.NLMSG_ERROR {
		return nil
	}
	if code := int32(binary.NativeEndian.Uint32(answer[unix.NLMSG_HDRLEN:])); code != 0 {
		return unix.Errno(-code)
	}
	return nil
}

// dumpNetfilter asks nf_tables to list what kind asks for, and tells of each.
func dumpNetfilter(ctx context.Context, kind int, family byte, tell func(data []byte)) error {
	fd, err := sendNetfilter(nfMessage(uint16(unix.NFNL_SUBSYS_NFTABLES<<8|kind), unix.NLM_F_REQUEST|unix.NLM_F_DUMP, family, 0, nil))
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for buffer := make([]byte, 64<<10); ; {
		n, err := receive(fd, buffer)
		if err = errors.Join(ctx.Err(), err); err != nil {
			return err
		}
		if done, err := eachMessage(buffer[:n], tell); done || err != nil {
			return err
		}
	}
}

// eachMessage tells of the messages in data, and reports whether the last was among
// them.
func eachMessage(data []byte, tell func(data []byte)) (done bool, err error) {
	for len(data) >= unix.NLMSG_HDRLEN {
		size := int(binary.NativeEndian.Uint32(data))
		if size < unix.NLMSG_HDRLEN || size > len(data) {
			return false, unix.EPROTO
		}
		switch kind := binary.NativeEndian.Uint16(data[4:]); {
		case kind == unix.NLMSG_DONE:
			return true, nil
		case kind == unix.NLMSG_ERROR:
			return true, refusal(data[:size])
		case kind>>8 == unix.NFNL_SUBSYS_NFTABLES && size >= unix.NLMSG_HDRLEN+nfgenmsg:
			tell(data[unix.NLMSG_HDRLEN:size])
		}
		data = data[min(len(data), (size+3)&^3):]
	}
	return false, nil
}

// Generation is that of three tables at most, in the network namespace of the calling thread.
// Of legacy, one that is not there is made.
func (t Tool) Generation(tables ...string) (s Generation, err error) {
	switch t.Backend {
	case NFT:
		s.generation, err = generation()
		return s, err
	case Legacy:
	default:
		return s, errors.ErrUnsupported // a test's
	}
	for i, table := range tables {
		if s.sizes[i], err = TableSize(t.Family, table); err != nil {
			return s, err
		}
	}
	return s, nil
}

// Foreign returns another Generation when another process has changed tables. Of nft it leaves out what Commits has
// counted; a commit that goes on now counts as another's until it is done. Of legacy it is another one also when this
// process has changed the size of a table.
func (t Tool) Foreign(tables ...string) (s Generation, err error) {
	var own uint32
	if t.Backend == NFT {
		own = t.Commits.n.Load() // first: what is committed meanwhile counts as another's, and not the other way round
	}
	s, err = t.Generation(tables...)
	s.generation -= own
	return s, err
}

// Uses returns of each chain of nft's tables of the family how many rules it has and how many lead to it,
// added up (NFTA_CHAIN_USE). While another process changes chains the kernel may leave some out, so the
// answer counts only if none did.
func (t Tool) Uses(ctx context.Context) (map[ID]uint32, error) {
	for range 10 {
		before, err := generation()
		if err != nil {
			return nil, err
		}
		uses := make(map[ID]uint32)
		err = dumpNetfilter(ctx, unix.NFT_MSG_GETCHAIN, nfproto(t.Family), func(data []byte) {
			id := ID{attribute(data, unix.NFTA_CHAIN_TABLE), attribute(data, unix.NFTA_CHAIN_NAME)}
			uses[id] = 0
			if use := attributeBytes(data, unix.NFTA_CHAIN_USE); len(use) == 4 {
				uses[id] = binary.BigEndian.Uint32(use)
			}
		})
		if err != nil {
			return nil, fmt.Errorf("ask for the chains of nft's tables: %w", err)
		}
		if after, err := generation(); err == nil && after == before {
			return uses, nil
		}
	}
	return nil, errors.New("ask for the chains of nft's tables: they change all the time")
}

// Counted returns how many packets came to the rules of some chains of the table filter, by the name that reasons has for
// the chain. It runs no program.
func (t Tool) Counted(ctx context.Context, reasons map[string]string) (map[string]uint64, error) {
	switch {
	case t.Backend == NFT:
		conn, err := nftnl.Dial()
		if err != nil {
			return nil, err
		}
		defer conn.Close()
		return conn.List(nftnl.Family(nfproto(t.Family)), "filter").Counted(ctx, reasons)
	case t.Backend == Legacy && slices.Contains(legacyTables(t.Family), "filter"): // else asking would make it
		list, err := readTable(t.Family, "filter")
		return list.counted(reasons), err
	}
	return nil, nil
}

// generation is the number that the kernel gives to what nft's tables say now.
func generation() (uint32, error) {
	request := nfMessage(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETGEN, unix.NLM_F_REQUEST, unix.AF_UNSPEC, 0, nil)
	answer, err := askNetfilter(request)
	var number []byte
	if err == nil {
		number = attributeBytes(answer[unix.NLMSG_HDRLEN:], unix.NFTA_GEN_ID)
	}
	if err == nil && len(number) != 4 {
		err = unix.EPROTO
	}
	if err != nil {
		return 0, fmt.Errorf("ask for the generation of nft's tables: %w", err)
	}
	return binary.BigEndian.Uint32(number), nil
}

// lacksNFT reports whether the kernel has no nft tables of family, though programs
// for them may be there. A kernel says so only when it is asked to make one, so it is
// asked in a batch that is never ended, which changes nothing.
func lacksNFT(family sdk.Family) bool {
	begin := nfMessage(unix.NFNL_MSG_BATCH_BEGIN, unix.NLM_F_REQUEST, unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES, nil)
	table := nfMessage(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWTABLE, unix.NLM_F_REQUEST|unix.NLM_F_CREATE|unix.NLM_F_ACK, nfproto(family), 0, tableName("pointsman"))
	_, err := askNetfilter(append(begin, table...))
	return errors.Is(err, unix.EOPNOTSUPP) // another error says nothing of it
}

// hasTable reports whether nft has a table of family that is called name. Programs
// of iptables show only their own.
func hasTable(family sdk.Family, name string) (bool, error) {
	get := nfMessage(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETTABLE, unix.NLM_F_REQUEST, nfproto(family), 0, tableName(name))
	_, err := askNetfilter(get)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EINVAL), errors.Is(err, unix.EPROTONOSUPPORT):
		return false, nil // no such table, or none at all
	case err != nil:
		return false, fmt.Errorf("look for nft's %s table %s: %w", family, name, err)
	}
	return true, nil
}

// deleteTable deletes the table of family that is called name from nft, with all
// that is in it, in one moment.
func deleteTable(family sdk.Family, name string) error {
	batch := slices.Concat(
		nfMessage(unix.NFNL_MSG_BATCH_BEGIN, unix.NLM_F_REQUEST, unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES, nil),
		nfMessage(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_DELTABLE, unix.NLM_F_REQUEST|unix.NLM_F_ACK, nfproto(family), 0, tableName(name)),
		nfMessage(unix.NFNL_MSG_BATCH_END, unix.NLM_F_REQUEST, unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES, nil))
	_, err := askNetfilter(batch)
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("delete nft's %s table %s: %w", family, name, err)
	}
	return nil
}

// tableName is the attribute that names a table.
func tableName(name string) []byte { return textAttribute(unix.NFTA_TABLE_NAME, name) }

// SweepKubeProxy removes, or only names, the tables that kube-proxy in its nftables mode
// has. No dataplane of ours has tables like them, so every one may see to it: that which
// serves is not asked to clean up.
func SweepKubeProxy(dryRun bool) ([]string, error) {
	var gone []string
	for i, family := range []sdk.Family{sdk.IPv4, sdk.IPv6} {
		there, err := hasTable(family, "kube-proxy")
		if err != nil {
			return gone, err
		}
		if !there {
			continue
		}
		if !dryRun {
			if err := deleteTable(family, "kube-proxy"); err != nil {
				return gone, err
			}
		}
		gone = append(gone, fmt.Sprintf("nft: remove table %s kube-proxy", []string{"ip", "ip6"}[i]))
	}
	return gone, nil
}
