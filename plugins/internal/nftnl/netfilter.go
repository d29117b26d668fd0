// SPDX-License-Identifier: Apache-2.0

package nftnl

import (
	"context"
	"errors"
	"syscall"
)

// This file has the messages of other subsystems of netfilter.

// Message types of the subsystems NFNL_SUBSYS_ACCT and NFNL_SUBSYS_NFT_COMPAT.
const (
	newAccount, getAccount, delAccount = 7 << 8, 7<<8 | 1, 7<<8 | 3
	getCompat                          = 11 << 8
)

// CreateAccount creates an account, a counter with a name (nfacct), unless it exists. It is independent of
// rules: it survives the replacement of a rule, and rules of all tables and families may share it.
func (c *Conn) CreateAccount(ctx context.Context, name string) error {
	return ignore(c.ask(ctx, newAccount, ack|create|exclusive, 0, []string{text(1, name)}, func([]byte) {}), syscall.EEXIST)
}

// Account returns the number of packets counted in an account. ok is false if it does not exist.
func (c *Conn) Account(ctx context.Context, name string) (packets uint64, ok bool) {
	err := c.ask(ctx, getAccount, ack, 0, []string{text(1, name)}, func(b []byte) {
		packets, ok = getUint(attr(b, 2)), true // NFACCT_PKTS
	})
	return packets, ok && err == nil
}

// DeleteAccount removes an account unless a rule uses it.
func (c *Conn) DeleteAccount(ctx context.Context, name string) error {
	return ignore(c.ask(ctx, delAccount, ack, 0, []string{text(1, name)}, func([]byte) {}), syscall.ENOENT)
}

// ignore returns nil for EBUSY, which means that a rule uses an account, and for done.
func ignore(err error, done syscall.Errno) error {
	if errors.Is(err, syscall.EBUSY) || errors.Is(err, done) {
		return nil
	}
	return err
}

// HasMatch returns ENOENT if the kernel does not have revision 0 of a match of iptables and cannot load it.
func (c *Conn) HasMatch(ctx context.Context, family Family, name string) error {
	return c.ask(ctx, getCompat, ack, family, []string{text(1, name), num(2, 0), num(3, 0)}, func([]byte) {}) // its revision, and that it is a match
}
