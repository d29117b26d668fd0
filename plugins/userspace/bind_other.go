// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package userspace

import "net"

// bind takes p for TCP and lets go of it at once.
func bind(p place) error {
	l, err := net.Listen(network(p), p.addr.String())
	if err != nil {
		return err
	}
	return l.Close()
}
