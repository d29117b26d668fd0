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

// A client whose connection was reset uses its port again. It reaches the relay that serves by then, which listens at other
// ports than the former one.
func TestKernelFailedClient(t *testing.T) {
	const frontend, port = "172.30.0.41:80", 45000
	web := svc("web", "cluster-ip "+frontend, podHere+":8080")
	for name, replace := range map[string]func(*node){
		"cleaned up without a session after it was killed": func(n *node) {
			n.stage.Close()
			other := newPlugin(n.kernel.dir)
			defer other.Close()
			if _, err := other.Cleanup(n.Context(), sdk.Leftovers{}); err != nil {
				n.Fatal(err)
			}
			n.restart(web)
		},
		"drains": func(n *node) {
			former := n.stage.plugin
			n.role(sdk.Yielded)
			n.restart(web)
			if ports := n.way.redirected()[0].portals.Ports(); ports == former.way.redirected()[0].portals.Ports() {
				n.Fatalf("both have the ports %v", ports)
			}
			former.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			onNode(t, func(n node) {
				n.serve(web) // loads conntrack
				n.kernel.run("sysctl", "-q", "net.netfilter.nf_conntrack_tcp_timeout_close=600")
				n.resets(podHere + ":9090")
				n.serve(svc("web", "cluster-ip "+frontend, podHere+":9090"))
				conn, err := n.dialFrom(outsider, port, frontend)
				if err != nil {
					n.Fatal(err)
				}
				defer conn.Close()
				fmt.Fprintln(conn, "x")
				if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
					n.Fatalf("the endpoint did not reset: %v", err)
				}
				replace(&n)
				n.servesAgain(outsider, port, frontend)
			})
		})
	}
}

// servesAgain waits until the kernel has no entry for a client's port, and fails if the relay does not serve the client there
// at once. Another attempt could succeed only because the first one made the kernel delete the entry.
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
	if _, err := askName(conn); err != nil {
		n.Error(err)
	}
}

// resets starts an endpoint that resets each connection after it has received a line.
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

// dialFrom connects from an address and a port, which may have been used before.
func (n node) dialFrom(addr string, port uint16, to string) (conn net.Conn, err error) {
	d := net.Dialer{
		Timeout:   time.Second,
		LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(addr), port)),
		Control: func(_, _ string, c syscall.RawConn) (err error) {
			asked := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) })
			return errors.Join(err, asked)
		},
	}
	err = n.host(addr).Do(func() error {
		conn, err = d.DialContext(n.Context(), "tcp", to)
		return err
	})
	return conn, err
}
