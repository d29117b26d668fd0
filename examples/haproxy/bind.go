// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/pointsman/pointsman/sdk"
)

// bindable reports why HAProxy could not listen on one of a section's addresses, if so.
func (p *plugin) bindable(s section) error {
	for _, f := range s.Frontends {
		listens := func(g sdk.Frontend) bool { return g.Addr == f.Addr }
		if slices.ContainsFunc(p.have[s.Name].Frontends, listens) {
			continue
		}
		if err := bind(f.Addr); err != nil {
			return fmt.Errorf("cannot listen on %s: %w", f.Addr, err)
		}
	}
	return nil
}

// bind binds a socket as HAProxy does, and closes it.
func bind(at netip.AddrPort) error {
	fd, err := unix.Socket(familyOf(at), unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var to unix.Sockaddr = &unix.SockaddrInet4{Port: int(at.Port())}
	if at.Addr().Is6() {
		to = &unix.SockaddrInet6{Port: int(at.Port()), Addr: at.Addr().As16()}
	} else {
		to.(*unix.SockaddrInet4).Addr = at.Addr().As4()
	}
	err = errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1),
	)
	if err != nil {
		return err
	}
	if err := unix.Bind(fd, to); errors.Is(err, syscall.EADDRNOTAVAIL) {
		return errors.New("this node does not have the address")
	} else if err != nil {
		return err
	}
	return nil
}

func familyOf(at netip.AddrPort) int {
	if at.Addr().Is6() {
		return unix.AF_INET6
	}
	return unix.AF_INET
}
