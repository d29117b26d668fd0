// SPDX-License-Identifier: Apache-2.0

package nftnl

import (
	"context"
	"errors"
	"slices"

	"golang.org/x/sys/unix"
)

// A Trace is one step of a traced packet: what a rule, or the policy of a base chain, did with it.
type Trace struct {
	ID           uint32 // identifies the packet; the kernel uses it again for later packets
	Family       Family // of the table
	Table, Chain string
	Handle       uint64 // of the rule; zero for a policy
	Drops        bool   // the packet is dropped or rejected

	// Network and Transport are the packet's headers when it enters a base chain, and nil in later steps there.
	Network, Transport []byte
}

// Traces calls f with each step of the packets for which rules have set MetaTrace, until ctx ends or f returns an
// error. The kernel drops steps if f is too slow.
func (c *Conn) Traces(ctx context.Context, f func(Trace) error) error {
	var joined error
	err := c.raw.Control(func(fd uintptr) {
		joined = unix.SetsockoptInt(int(fd), unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, unix.NFNLGRP_NFTRACE)
	})
	if err := errors.Join(err, joined); err != nil {
		return err
	}
	return c.within(ctx, func() error {
		for {
			var stopped error
			_, err := c.receive(true, func(kind, _ uint16, _ uint32, body []byte) {
				if t, ok := readTrace(body); kind == trace && ok && stopped == nil {
					stopped = f(t)
				}
			})
			if stopped != nil || err != nil && !errors.Is(err, unix.ENOBUFS) {
				return errors.Join(stopped, err)
			}
		}
	})
}

// readTrace parses a message of kind trace. It is not ok for a return from a chain.
func readTrace(body []byte) (t Trace, ok bool) {
	const policy, rule = 1, 3 // enum nft_trace_types
	if len(body) < 4 {
		return t, false
	}
	b := body[4:]
	t = Trace{
		ID: uint32(getUint(attr(b, 6))), Family: Family(body[0]), Table: getText(attr(b, 1)), Chain: getText(attr(b, 2)), Handle: getUint(attr(b, 3)),
		Network: slices.Clone(attr(b, 8)), Transport: slices.Clone(attr(b, 9)),
	}
	switch getUint(attr(b, 4)) {
	case policy:
		v := attr(b, 16)
		t.Handle, t.Drops = 0, v != nil && getUint(v) == 0
	case rule:
		v := attr(b, 5, 1) // NFTA_VERDICT_CODE, with an errno in its upper half
		t.Drops = v != nil && getUint(v)&0xff == 0
	default:
		return t, false
	}
	return t, true
}
