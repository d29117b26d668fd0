// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// An account is a counter that the kernel keeps by name (nfacct), apart from any rule:
// it goes on when the rule that counts by it is written anew, and every rule, table
// and family may share it.
const (
	acctNew = unix.NFNL_SUBSYS_ACCT << 8 // the messages, by their numbers: 0,
	acctGet = acctNew | 1
	acctDel = acctNew | 3

	acctName    = 1 // and the attributes
	acctPackets = 2
)

// OpenAccounts makes the accounts that are not there yet.
func OpenAccounts(names ...string) error {
	for _, name := range names {
		err := account(acctNew, unix.NLM_F_CREATE|unix.NLM_F_EXCL, name)
		if err != nil && !errors.Is(err, unix.EEXIST) && !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("make the account %s: %w", name, err)
		}
	}
	return nil
}

// Account is how many packets were counted by the account called name. One that is not
// there has none, and ok is false.
func Account(name string) (packets uint64, ok bool) {
	answer, err := askNetfilter(acctMessage(acctGet, 0, name))
	if err != nil || binary.NativeEndian.Uint16(answer[4:]) != acctNew {
		return 0, false
	}
	counted := attributeBytes(answer[unix.NLMSG_HDRLEN:], acctPackets)
	if len(counted) != 8 {
		return 0, false
	}
	return binary.BigEndian.Uint64(counted), true
}

// CloseAccount removes the account called name, unless some rule counts by it.
func CloseAccount(name string) error {
	err := account(acctDel, 0, name)
	if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("remove the account %s: %w", name, err)
	}
	return nil
}

func account(kind, flags uint16, name string) error {
	_, err := askNetfilter(acctMessage(kind, flags|unix.NLM_F_ACK, name))
	return err
}

func acctMessage(kind, flags uint16, name string) []byte {
	return nfMessage(kind, unix.NLM_F_REQUEST|flags, unix.AF_UNSPEC, 0, textAttribute(acctName, name))
}
