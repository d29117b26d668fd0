// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"sync/atomic"
	"syscall"

	"github.com/vishvananda/netlink"
	vnetns "github.com/vishvananda/netns"

	"github.com/pointsman/pointsman/sdk/sdktest/internal/echo"
)

// A Host is one namespace: the node's, or one behind it.
type Host struct {
	home, ns vnetns.NsHandle // where the test runs, and where the host is
	node     *netlink.Handle // of what it is behind: the node's, or of a pod its own node's
	device   string          // at the node's end of its veth pair
	handle   *netlink.Handle
	addrs    map[netip.Addr]bool
	ports    *ports // of the whole testbed
}

// Do calls f on a thread that is in the host's namespace: the sockets that f opens
// are the host's, for good.
func (h *Host) Do(f func() error) error {
	if h.ns == h.home {
		return f()
	}
	return away(h.home, func() error {
		if err := vnetns.Set(h.ns); err != nil {
			return fmt.Errorf("enter a host's namespace: %w", err)
		}
		return f()
	})
}

// away calls f on a thread that may leave the namespace home, and brings it back.
func away(home vnetns.NsHandle, f func() error) (err error) {
	runtime.LockOSThread()
	defer func() {
		if back := vnetns.Set(home); back != nil {
			err = errors.Join(err, fmt.Errorf("come back from a host's namespace: %w", back))
			return // the thread stays locked, and ends with its goroutine
		}
		runtime.UnlockOSThread()
	}()
	return f()
}

// Dial opens a connection from one of the host's addresses.
func (h *Host) Dial(ctx context.Context, network string, from netip.Addr, to netip.AddrPort) (conn net.Conn, err error) {
	err = h.Do(func() error {
		for range 1000 {
			d := net.Dialer{LocalAddr: echo.Local(network, netip.AddrPortFrom(from, h.ports.next())), KeepAlive: -1}
			conn, err = d.DialContext(ctx, network, to.String())
			if !errors.Is(err, syscall.EADDRINUSE) {
				break
			}
		}
		return err
	})
	return conn, err
}

// Listen opens a listener on one of the host's addresses.
func (h *Host) Listen(ctx context.Context, network string, at netip.AddrPort) (l net.Listener, err error) {
	err = h.Do(func() error {
		l, err = new(net.ListenConfig).Listen(ctx, network, at.String())
		return err
	})
	return l, err
}

// ListenPacket opens a socket for datagrams on one of the host's addresses.
func (h *Host) ListenPacket(ctx context.Context, network string, at netip.AddrPort) (c net.PacketConn, err error) {
	err = h.Do(func() error {
		c, err = new(net.ListenConfig).ListenPacket(ctx, network, at.String())
		return err
	})
	return c, err
}

// The ports that callers call from: above those of node ports.
const firstPort, lastPort = 33000, 60999

// ports gives each caller another port, until all have had their turn. A port that was
// used not long ago, for the same destination, has the kernel send the new connection
// where it sent that one, which it tracks for minutes.
type ports struct{ given atomic.Uint32 }

func (p *ports) next() uint16 {
	return uint16(firstPort + (p.given.Add(1)-1)%(lastPort-firstPort+1))
}
