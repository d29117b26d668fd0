// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"encoding/binary"
	"errors"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/pointsman/pointsman/sdk"
)

// matches are the iptables matches in the rules of our modes.
var matches = []string{"addrtype", "comment", "conntrack", "mark", "recent", "statistic"}

// missingMatches returns the kernel options of those matches that this kernel does not have and cannot load.
func (t Tool) missingMatches(names ...string) (options []string) {
	for _, name := range names {
		ask := t.asksNFT
		if t.Backend == Legacy {
			ask = t.asksLegacy
		}
		if errors.Is(ask(name), unix.ENOENT) { // other errors have other causes
			options = append(options, "CONFIG_NETFILTER_XT_MATCH_"+strings.ToUpper(name))
		}
	}
	return options
}

// asksNFT asks whether nf_tables can use revision 0 of an iptables match.
func (t Tool) asksNFT(name string) error {
	const kind = unix.NFNL_SUBSYS_NFT_COMPAT << 8 // NFNL_MSG_COMPAT_GET
	number := func(which uint16) []byte {
		b := binary.NativeEndian.AppendUint16(nil, unix.SizeofNlAttr+4)
		return append(binary.NativeEndian.AppendUint16(b, which), 0, 0, 0, 0)
	}
	attributes := append(append(textAttribute(1, name), number(2)...), number(3)...) // its name, its revision, and that it is a match
	_, err := askNetfilter(nfMessage(kind, unix.NLM_F_REQUEST, nfproto(t.Family), 0, attributes))
	return err
}

// asksLegacy asks whether legacy iptables has revision 0 of a match.
func (t Tool) asksLegacy(name string) error {
	revision := struct {
		name     [29]byte
		revision byte
	}{}
	copy(revision.name[:28], name)
	question := 66 // IPT_SO_GET_REVISION_MATCH
	if t.Family == sdk.IPv6 {
		question = 68
	}
	return askLegacy(t.Family, question, unsafe.Pointer(&revision), uint32(unsafe.Sizeof(revision)))
}
