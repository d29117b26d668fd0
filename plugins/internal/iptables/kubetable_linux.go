// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/pointsman/pointsman/sdk"
)

// HasTable reports whether nft has a table of family that is called name. Programs
// of iptables show only their own.
func HasTable(family sdk.Family, name string) (bool, error) {
	get := nfMessage(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETTABLE, unix.NLM_F_REQUEST, nfproto(family), 0, tableName(name))
	answer, err := askNetfilter(get)
	if err == nil {
		err = refusal(answer)
	}
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EINVAL), errors.Is(err, unix.EPROTONOSUPPORT):
		return false, nil // no such table, or none at all
	case err != nil:
		return false, fmt.Errorf("look for nft's %s table %s: %w", family, name, err)
	}
	return true, nil
}

// DeleteTable deletes the table of family that is called name from nft, with all
// that is in it, in one moment.
func DeleteTable(family sdk.Family, name string) error {
	batch := slices.Concat(
		nfMessage(unix.NFNL_MSG_BATCH_BEGIN, unix.NLM_F_REQUEST, unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES, nil),
		nfMessage(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_DELTABLE, unix.NLM_F_REQUEST|unix.NLM_F_ACK, nfproto(family), 0, tableName(name)),
		nfMessage(unix.NFNL_MSG_BATCH_END, unix.NLM_F_REQUEST, unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES, nil))
	answer, err := askNetfilter(batch)
	if err == nil {
		err = refusal(answer)
	}
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("delete nft's %s table %s: %w", family, name, err)
	}
	return nil
}

// tableName is the attribute that names a table.
func tableName(name string) []byte { return textAttribute(unix.NFTA_TABLE_NAME, name) }
