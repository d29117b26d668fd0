// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/pointsman/pointsman/sdk"
)

// lacksNFT reports whether the kernel has no nft tables of family, though programs
// for them may be there. A kernel says so only when it is asked to make one, so it is
// asked in a batch that is never ended, which changes nothing.
func lacksNFT(family sdk.Family) bool {
	answer, err := askNetfilter(newTableBatch(family))
	return err == nil && errors.Is(refusal(answer), unix.EOPNOTSUPP) // another error says nothing of it
}

// newTableBatch is the beginning of a batch that makes a table of family.
func newTableBatch(family sdk.Family) []byte {
	begin := nfMessage(unix.NFNL_MSG_BATCH_BEGIN, unix.NLM_F_REQUEST, unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES, nil)
	table := nfMessage(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWTABLE, unix.NLM_F_REQUEST|unix.NLM_F_CREATE|unix.NLM_F_ACK, nfproto(family), 0, tableName("pointsman"))
	return append(begin, table...)
}
