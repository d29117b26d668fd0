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

	"golang.org/x/sys/unix"

	"github.com/pointsman/pointsman/sdk"
)

// TestKernelResetClient: a client whose connection an endpoint has reset uses its port
// again, and finds the relay that serves by then at other ports than the one before.
func TestKernelResetClient(t *testing.T) {
	const frontend, port = "172.30.0.41:80", 45000
	for name, replace := range map[string]func(n *node, services ...sdk.Service){
		"cleaned up before": func(n *node, services ...sdk.Service) {
			if _, err := n.Cleanup(n.Context(), sdk.Leftovers{}); err != nil {
				n.Fatal(err)
			}
			n.stage.Close()
			n.stage.Dataplane = New(n.kernel.dir)
			n.begin()
			n.serve(services...)
		},
		"draining before": func(n *node, services ...sdk.Service) {
			former := n.stage.Dataplane
			n.role(sdk.Yielded)
			n.stage.Dataplane = New(n.kernel.dir)
			n.begin()
			n.serve(services...)
			if ports := n.way.portals.Ports(sdk.IPv4); ports == former.way.portals.Ports(sdk.IPv4) {
				n.Fatalf("both have the ports %v", ports)
			}
			former.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			onNode(t, func(n node) {
				n.resets(podHere + ":9090")
				resets := svc("web", "cluster-ip "+frontend, podHere+":9090")
				n.serve(resets)
				conn, err := n.dialFrom(port, frontend)
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
				began := time.Now()
				eventually(n.T, func() error {
					conn, err := n.dialFrom(port, frontend)
					if err != nil {
						return err
					}
					defer conn.Close()
					_, err = hears(conn)
					return err
				})
				if took := time.Since(began); took > 2*addressPeriod {
					n.Errorf("the client was served after %s", took)
				}
			})
		})
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

// dialFrom is a connection of an outsider from a port that may have been used before.
func (n node) dialFrom(port uint16, to string) (conn net.Conn, err error) {
	d := net.Dialer{
		Timeout:   time.Second,
		LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(outsider), port)),
		Control: func(_, _ string, c syscall.RawConn) (err error) {
			asked := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) })
			return errors.Join(err, asked)
		},
	}
	err = n.host(outsider).Do(func() error {
		conn, err = d.DialContext(n.Context(), "tcp", to)
		return err
	})
	return conn, err
}
