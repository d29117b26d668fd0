// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/pointsman/pointsman/sdk"
)

// TestKernelFailedClient: a client whose connection was reset, or came when no relay ran, uses
// its port again, and finds the relay that serves by then at other ports than the one before.
func TestKernelFailedClient(t *testing.T) {
	const frontend, port = "172.30.0.41:80", 45000
	for name, replace := range map[string]func(n *node, services ...sdk.Service){
		"cleaned up before": func(n *node, services ...sdk.Service) {
			if _, err := n.Cleanup(n.Context(), sdk.Leftovers{}); err != nil {
				n.Fatal(err)
			}
			n.stage.Close()
			n.stage.plugin = newPlugin(n.kernel.dir)
			n.begin()
			n.serve(services...)
		},
		"cleaned up without a session, after it was killed": func(n *node, services ...sdk.Service) {
			n.stage.Close()
			n.sweepApart()
			n.stage.plugin = newPlugin(n.kernel.dir)
			n.begin()
			n.serve(services...)
		},
		"cleaned up while the one before drains": func(n *node, services ...sdk.Service) {
			former := n.stage.plugin
			n.role(sdk.Yielded)
			n.stage.plugin = newPlugin(n.kernel.dir)
			n.begin()
			n.serve(services...)
			if _, err := n.Cleanup(n.Context(), sdk.Leftovers{}); err != nil {
				n.Fatal(err)
			}
			n.stage.Close()
			former.Close()
			n.stage.plugin = newPlugin(n.kernel.dir)
			n.begin()
			n.serve(services...)
		},
		"draining before": func(n *node, services ...sdk.Service) {
			former := n.stage.plugin
			n.role(sdk.Yielded)
			n.stage.plugin = newPlugin(n.kernel.dir)
			n.begin()
			n.serve(services...)
			if ports := n.way.redirected()[0].portals.Ports(); ports == former.way.redirected()[0].portals.Ports() {
				n.Fatalf("both have the ports %v", ports)
			}
			former.Close()
		},
	} {
		t.Run("reset, "+name, func(t *testing.T) {
			onNode(t, func(n node) {
				n.resets(podHere + ":9090")
				resets := svc("web", "cluster-ip "+frontend, podHere+":9090")
				n.serve(resets)
				conn, err := n.dialFrom(outsider, port, frontend)
				if err != nil {
					n.Fatal(err)
				}
				fmt.Fprintln(conn, "x")
				_, err = conn.Read(make([]byte, 1))
				conn.Close()
				if !errors.Is(err, syscall.ECONNRESET) {
					n.Fatalf("the endpoint did not reset: %v", err)
				}
				replace(&n, svc("web", "cluster-ip "+frontend, podHere+":8080"))
				n.servesAgain(outsider, port, frontend)
			})
		})
		t.Run("not answered, "+name, func(t *testing.T) {
			onNode(t, func(n node) {
				web := svc("web", "cluster-ip "+frontend, podHere+":8080")
				n.serve(web)
				n.stage.Close()
				if conn, err := n.dialFrom(nodeAddr, port, frontend); err == nil {
					conn.Close()
					n.Fatal("a relay that ended answers")
				}
				n.stage.plugin = newPlugin(n.kernel.dir)
				n.begin()
				n.serve(web)
				replace(&n, web)
				n.servesAgain(nodeAddr, port, frontend)
			})
		})
	}
}

// sweepApart is Cleanup by a process that has no session.
func (n node) sweepApart() {
	n.Helper()
	apart := newPlugin(n.kernel.dir)
	defer apart.Close()
	if _, err := apart.Cleanup(n.Context(), sdk.Leftovers{}); err != nil {
		n.Fatal(err)
	}
}

// servesAgain holds the relay to serving a client at a port that it used before, at once when
// the kernel has forgotten the connection from there. Without it the first call
// fails, and is what makes the kernel forget one that was never answered.
func (n node) servesAgain(addr string, port uint16, frontend string) {
	n.Helper()
	eventually(n.T, func() error {
		flows, err := netlink.ConntrackTableList(netlink.ConntrackTable, unix.AF_INET)
		for _, f := range flows {
			if f.Forward.Protocol == unix.IPPROTO_TCP && f.Forward.SrcPort == port {
				err = fmt.Errorf("the kernel remembers %s", f)
			}
		}
		return err
	})
	conn, err := n.dialFrom(addr, port, frontend)
	if err != nil {
		n.Fatal(err)
	}
	defer conn.Close()
	if _, err := hears(conn); err != nil {
		n.Error(err)
	}
}

// resets is an endpoint that resets each connection when it is sent something.
func (n node) resets(addr string) {
	n.Helper()
	l, err := n.host(podHere).Listen(n.Context(), "tcp", netip.MustParseAddrPort(addr))
	if err != nil {
		n.Fatal(err)
	}
	n.stage.T.Cleanup(func() { l.Close() })
	go func() { // ends when l is closed
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = bufio.NewReader(c).ReadString('\n')
			_ = c.(*net.TCPConn).SetLinger(0)
			c.Close()
		}
	}()
}

// dialFrom is a connection of the node itself, of which the kernel remembers a SYN that was
// dropped, or of an outsider. The port may have been used before.
func (n node) dialFrom(addr string, port uint16, to string) (conn net.Conn, err error) {
	h := n.world.Node()
	if addr != nodeAddr {
		h = n.host(addr)
	}
	d := net.Dialer{
		Timeout:   time.Second,
		LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(addr), port)),
		Control: func(_, _ string, c syscall.RawConn) (err error) {
			asked := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) })
			return errors.Join(err, asked)
		},
	}
	err = h.Do(func() error {
		conn, err = d.DialContext(n.Context(), "tcp", to)
		return err
	})
	return conn, err
}
