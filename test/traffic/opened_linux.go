// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// Opened returns how long a connection takes to open. Its socket blocks in the kernel, so that Go's scheduler is not
// measured. It waits for the endpoint's answer, so that nothing of this connection remains to be done when the next one
// starts.
func Opened(to netip.AddrPort) (took time.Duration, err error) {
	for range 100 { // a signal of Go's scheduler interrupts one now and then
		if took, err = opened(to); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	return took, err
}

func opened(to netip.AddrPort) (took time.Duration, err error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	limit := unix.NsecToTimeval(int64(Timeout))
	err = errors.Join(unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}), // its port is free at once
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit), unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &limit))
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if err := unix.Connect(fd, &unix.SockaddrInet4{Addr: to.Addr().As4(), Port: int(to.Port())}); err != nil {
		return 0, fmt.Errorf("connect to %s: %w", to, err)
	}
	took = time.Since(began)
	_, err = unix.Read(fd, make([]byte, 64))
	return took, err
}
