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

// This file queries nf_tables by netlink: first encoding, decoding and transport of messages, then the queries.

// nfMessage returns a netlink message of netfilter.
func nfMessage(kind, flags uint16, family byte, resource uint16, attributes []byte) []byte {
	b := make([]byte, unix.NLMSG_HDRLEN, unix.NLMSG_HDRLEN+4+len(attributes))
	binary.NativeEndian.PutUint32(b, uint32(cap(b)))
	binary.NativeEndian.PutUint16(b[4:], kind)
	binary.NativeEndian.PutUint16(b[6:], flags)
	b = append(b, family, unix.NFNETLINK_V0)
	b = binary.BigEndian.AppendUint16(b, resource)
	return append(b, attributes...)
}

// nfgenmsg is the size of the header before the attributes of a message. Its first byte is the family.
const nfgenmsg = 4

// textAttribute encodes an attribute with text.
func textAttribute(which uint16, text string) []byte {
	b := binary.NativeEndian.AppendUint16(nil, uint16(unix.SizeofNlAttr+len(text)+1))
	b = binary.NativeEndian.AppendUint16(b, which)
	b = append(append(b, text...), 0)
	return append(b, make([]byte, -len(b)&3)...)
}

// nfproto returns netfilter's number of a family.
func nfproto(f sdk.Family) byte {
	if f == sdk.IPv6 {
		return unix.NFPROTO_IPV6
	}
	return unix.NFPROTO_IPV4
}

// attribute returns an attribute of a message as text, or "".
func attribute(data []byte, which uint16) string {
	return strings.TrimRight(string(attributeBytes(data, which)), "\x00")
}

// attributeBytes returns an attribute of a message, or nil.
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

// sendNetfilter opens a socket in the network namespace of the calling thread, with a receive timeout of a
// second, and sends messages on it. The caller closes it.
func sendNetfilter(messages []byte) (fd int, err error) {
	fd, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return -1, err
	}
	if err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 1}); err == nil {
		err = unix.Sendto(fd, messages, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
	}
	if err != nil {
		_ = unix.Close(fd) // the first error says more
		return -1, err
	}
	return fd, nil
}

// receive reads one answer. It repeats on EINTR (a signal such as SIGCHLD), because the kernel does not restart
// a call on a socket with a timeout.
func receive(fd int, into []byte) (n int, err error) {
	for {
		n, _, err = unix.Recvfrom(fd, into, 0)
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

// askNetfilter sends messages and returns the first answer, which has at least a header.
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

// refusal returns the error in an answer, or nil.
func refusal(answer []byte) error {
	if len(answer) < unix.NLMSG_HDRLEN+4 || binary.NativeEndian.Uint16(answer[4:]) != unix.NLMSG_ERROR {
		return nil
	}
	if code := int32(binary.NativeEndian.Uint32(answer[unix.NLMSG_HDRLEN:])); code != 0 {
		return unix.Errno(-code)
	}
	return nil
}

// dumpNetfilter sends a dump request to nf_tables and calls tell for each object.
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

// eachMessage calls tell for each message in data, and reports whether the dump is complete.
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

// Generation returns the generation of at most three tables, in the network namespace of the calling thread.
// For legacy it creates tables that do not exist.
func (t Tool) Generation(tables ...string) (s Generation, err error) {
	switch t.Backend {
	case NFT:
		s.generation, err = generation()
		return s, err
	case Legacy:
	default:
		return s, errors.ErrUnsupported // of a test
	}
	for i, table := range tables {
		if s.sizes[i], err = TableSize(t.Family, table); err != nil {
			return s, err
		}
	}
	return s, nil
}

// Foreign returns a Generation that differs from the last one if another process has changed tables. For nft it
// leaves out the commits that Commits has counted. A commit in progress counts as foreign until it is done. For
// legacy it also differs if this process has changed the size of a table.
func (t Tool) Foreign(tables ...string) (s Generation, err error) {
	var own uint32
	if t.Backend == NFT {
		own = t.Commits.n.Load() // read first: a commit in between then counts as foreign, not a foreign one as ours
	}
	s, err = t.Generation(tables...)
	s.generation -= own
	return s, err
}

// Uses returns, for each chain of nf_tables in the family, the number of its rules plus the number of rules
// that lead to it (NFTA_CHAIN_USE). While another process changes chains, the kernel may skip some in a dump,
// so Uses repeats it until the generation is the same before and after.
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

// Counted returns how many packets reached the rules of some chains of filter, by the value that reasons has
// for the chain. It runs no program.
func (t Tool) Counted(ctx context.Context, reasons map[string]string) (map[string]uint64, error) {
	switch {
	case t.Backend == NFT:
		conn, err := nftnl.Dial()
		if err != nil {
			return nil, err
		}
		defer conn.Close()
		return conn.List(nftnl.Family(nfproto(t.Family)), "filter").Counted(ctx, reasons)
	case t.Backend == Legacy && slices.Contains(legacyTables(t.Family), "filter"): // asking for a table would create it
		list, err := readTable(t.Family, "filter")
		return list.counted(reasons), err
	}
	return nil, nil
}

// generation returns the generation of the nf_tables rule set.
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

// lacksNFT reports whether the kernel has no nf_tables for family, although the programs may be installed. The
// kernel tells only when a table is created. So lacksNFT sends that in a batch that it does not end, which
// changes nothing.
func lacksNFT(family sdk.Family) bool {
	begin := nfMessage(unix.NFNL_MSG_BATCH_BEGIN, unix.NLM_F_REQUEST, unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES, nil)
	table := nfMessage(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWTABLE, unix.NLM_F_REQUEST|unix.NLM_F_CREATE|unix.NLM_F_ACK, nfproto(family), 0, tableName("pointsman"))
	_, err := askNetfilter(append(begin, table...))
	return errors.Is(err, unix.EOPNOTSUPP) // other errors have other causes
}

// hasTable reports whether nf_tables has a table called name. The iptables programs show only their own tables.
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

// deleteTable deletes a table with its content in one transaction.
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

// tableName encodes the attribute with a table's name.
func tableName(name string) []byte { return textAttribute(unix.NFTA_TABLE_NAME, name) }

// SweepKubeProxy removes the tables of kube-proxy's nftables mode. With dryRun it only names them. None of our
// dataplanes has such tables, so the cleanup of any dataplane may remove them: the one that serves is not asked
// to clean up.
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
