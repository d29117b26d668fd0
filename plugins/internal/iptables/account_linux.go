// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// An account is a counter in the kernel with a name (nfacct). It is independent of rules: it survives the
// replacement of a rule, and rules of all tables and families may share it.
const (
	acctNew = unix.NFNL_SUBSYS_ACCT << 8 // message numbers: 0 for new
	acctGet = acctNew | 1
	acctDel = acctNew | 3

	acctName    = 1 // attribute numbers
	acctPackets = 2
)

// OpenAccounts creates the accounts that do not exist.
func OpenAccounts(names ...string) error {
	for _, name := range names {
		err := account(acctNew, unix.NLM_F_CREATE|unix.NLM_F_EXCL, name)
		if err != nil && !errors.Is(err, unix.EEXIST) && !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("create nfacct account %s: %w", name, err)
		}
	}
	return nil
}

// Account returns the number of packets counted in an account. ok is false if it does not exist.
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

// CloseAccount removes an account unless a rule uses it.
func CloseAccount(name string) error {
	err := account(acctDel, 0, name)
	if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("remove nfacct account %s: %w", name, err)
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
