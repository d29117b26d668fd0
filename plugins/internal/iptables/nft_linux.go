// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"encoding/binary"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/pointsman/pointsman/sdk"
)

// lacksNFT reports whether the kernel has no nft tables of family, though programs
// for them may be there. A kernel says so only when it is asked to make one, so it is
// asked in a batch that is never ended, which changes nothing.
func lacksNFT(family sdk.Family) bool {
	answer, err := askNetfilter(newTableBatch(family))
	if err != nil || len(answer) < unix.NLMSG_HDRLEN+4 || binary.NativeEndian.Uint16(answer[4:]) != unix.NLMSG_ERROR {
		return false // nobody can tell
	}
	errno := unix.Errno(-int32(binary.NativeEndian.Uint32(answer[unix.NLMSG_HDRLEN:])))
	return errors.Is(errno, unix.EOPNOTSUPP)
}

// newTableBatch is the beginning of a batch that makes a table of family.
func newTableBatch(family sdk.Family) []byte {
	of := byte(unix.AF_INET)
	if family == sdk.IPv6 {
		of = unix.AF_INET6
	}
	name := []byte("\x0e\x00\x01\x00pointsman\x00\x00\x00") // NFTA_TABLE_NAME, of 14 bytes and padded
	begin := nfMessage(unix.NFNL_MSG_BATCH_BEGIN, unix.NLM_F_REQUEST, unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES, nil)
	table := nfMessage(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWTABLE, unix.NLM_F_REQUEST|unix.NLM_F_CREATE|unix.NLM_F_ACK, of, 0, name)
	return append(begin, table...)
}

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
