// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

// Generation is that of three tables at most, in the network namespace of the calling thread.
// Of legacy, one that is not there is made.
func (t Tool) Generation(tables ...string) (s Generation, err error) {
	if t.Backend == NFT {
		s.generation, err = generation()
		return s, err
	}
	for i, table := range tables {
		if s.sizes[i], err = TableSize(t.Family, table); err != nil {
			return s, err
		}
	}
	return s, nil
}

// generation is the number that the kernel gives to what nft's tables say now.
func generation() (uint32, error) {
	request := nfMessage(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETGEN, unix.NLM_F_REQUEST, unix.AF_UNSPEC, 0, nil)
	answer, err := askNetfilter(request)
	if err == nil {
		err = refusal(answer)
	}
	if err != nil {
		return 0, fmt.Errorf("ask for the generation of nft's tables: %w", err)
	}
	if len(answer) < unix.NLMSG_HDRLEN+nfgenmsg {
		return 0, fmt.Errorf("ask for the generation of nft's tables: %w", unix.EPROTO)
	}
	number := attributeBytes(answer[unix.NLMSG_HDRLEN:], unix.NFTA_GEN_ID)
	if len(number) != 4 {
		return 0, fmt.Errorf("ask for the generation of nft's tables: %w", unix.EPROTO)
	}
	return binary.BigEndian.Uint32(number), nil
}
