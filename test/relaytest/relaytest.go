// SPDX-License-Identifier: Apache-2.0

// Package relaytest provides endpoints and clients on loopback addresses, for the tests of the relay and of the
// dataplane that is built on it. Both need the same ones. It must only listen below 127.0.0.0/8.
package relaytest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/test/eventually"
)

// Timeout limits what must happen.
const Timeout = time.Minute

// NeedsLoopback skips a test if not all of 127.0.0.0/8 can be listened on.
func NeedsLoopback(t testing.TB) {
	t.Helper()
	if runtime.GOOS != "linux" && runtime.GOOS != "windows" {
		t.Skip("needs all of 127.0.0.0/8 on the loopback interface")
	}
}

// Addr returns the n-th address of this process, with a port.
func Addr(n int, port uint16) string {
	pid := os.Getpid()
	return fmt.Sprintf("127.%d.%d.%d:%d", 100+pid>>8&63, pid&255, n, port)
}

// Service returns a TCP Service by a short notation: a name, its frontends as "KIND ADDR [local]", separated by commas,
// and its endpoints.
func Service(name, frontends, endpoints string) sdk.Service {
	s := sdk.Service{Name: sdk.Name{Namespace: "ns1", Service: name, Protocol: sdk.TCP, Family: sdk.IPv4}}
	kinds := map[string]sdk.Kind{"cluster-ip": sdk.ClusterIP, "node-port": sdk.NodePort, "external-ip": sdk.ExternalIP, "load-balancer": sdk.LoadBalancer}
	for _, line := range strings.Split(frontends, ",") {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		f := sdk.Frontend{Kind: kinds[words[0]], Addr: netip.MustParseAddrPort(words[1]), Policy: sdk.Cluster}
		if len(words) > 2 {
			f.Policy = sdk.Local
		}
		s.Frontends = append(s.Frontends, f)
	}
	if len(s.Frontends) > 0 {
		s.Name.Family = sdk.FamilyOf(s.Frontends[0].Addr.Addr())
	}
	for _, ep := range strings.Fields(endpoints) {
		s.Cluster = append(s.Cluster, sdk.Endpoint{Addr: netip.MustParseAddrPort(ep)})
	}
	return s
}

// UDP changes a Service to UDP.
func UDP(s sdk.Service) sdk.Service {
	s.Name.Protocol = sdk.UDP
	return s
}

// Eventually waits until f returns nil.
func Eventually(t testing.TB, f func() error) {
	t.Helper()
	if err := eventually.Try(Timeout, f); err != nil {
		t.Fatalf("after %s still: %v", Timeout, err)
	}
}

// Endpoint listens at addr until the test ends. By default it sends one line, the endpoint's address, and closes the
// connection; a test may serve it in another way.
func Endpoint(t testing.TB, addr string, serve func(*net.TCPConn)) {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	if serve == nil {
		serve = func(c *net.TCPConn) { fmt.Fprintln(c, addr) }
	}
	go func() { // ends when l is closed
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { // ends with serve
				defer c.Close()
				_ = c.SetDeadline(time.Now().Add(Timeout))
				serve(c.(*net.TCPConn))
			}()
		}
	}()
}

// Echo sends back what it receives, until the client has closed its side.
func Echo(c *net.TCPConn) { _, _ = io.Copy(c, c) }

// Dial connects to addr, until the test ends.
func Dial(t testing.TB, addr string) *net.TCPConn {
	t.Helper()
	c, err := net.DialTimeout("tcp", addr, Timeout)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(Timeout))
	return c.(*net.TCPConn)
}

// Ask returns the first line that a connection to addr receives.
func Ask(addr string) (string, error) {
	c, err := net.DialTimeout("tcp", addr, Timeout)
	if err != nil {
		return "", err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(Timeout))
	line, err := bufio.NewReader(c).ReadString('\n')
	return strings.TrimSpace(line), err
}

// Reset reports whether err means that the other side has reset the connection.
func Reset(err error) bool { return isOneOf(err, syscall.ECONNRESET, syscall.Errno(10054)) }

// Refused reports whether err means that nothing listens at the address.
func Refused(err error) bool { return isOneOf(err, syscall.ECONNREFUSED, syscall.Errno(10061)) }

// isOneOf compares with the errors of other systems and of Windows.
func isOneOf(err error, elsewhere, windows syscall.Errno) bool {
	return errors.Is(err, elsewhere) || errors.Is(err, windows)
}

// Finds fails the test unless connections to addr reach exactly these endpoints.
func Finds(t testing.TB, addr string, endpoints ...string) {
	t.Helper()
	seen := make(map[string]bool)
	for range 4 * len(endpoints) {
		got, err := Ask(addr)
		if err != nil {
			t.Fatalf("ask %s: %v", addr, err)
		}
		seen[got] = true
	}
	for _, ep := range endpoints {
		if !seen[ep] {
			t.Errorf("connections to %s never reach %s", addr, ep)
		}
		delete(seen, ep)
	}
	if len(seen) > 0 {
		t.Errorf("connections to %s also reach %v", addr, seen)
	}
}

// UDPEndpoint answers each datagram to addr with that address and what it received. It
// ends with the test, or when it is closed.
func UDPEndpoint(t testing.TB, addr string) net.PacketConn {
	t.Helper()
	conn, err := net.ListenPacket("udp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	go func() { // ends when conn is closed
		buf := make([]byte, 1<<16)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = conn.WriteTo([]byte(addr+" "+string(buf[:n])), from)
		}
	}()
	return conn
}

// UDPClient returns a socket that is connected to addr, and so receives only from there.
func UDPClient(t testing.TB, addr string) net.Conn {
	t.Helper()
	conn, err := net.Dial("udp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// AskUDP returns the UDPEndpoint that answers a datagram. Without an answer it sends another one, as clients of UDP do,
// with a number that distinguishes late answers.
func AskUDP(t testing.TB, conn net.Conn, text string) string {
	t.Helper()
	var endpoint string
	Eventually(t, func() (err error) {
		endpoint, err = askOnce(conn, fmt.Sprint(rand.Uint32(), " ", text))
		return err
	})
	return endpoint
}

// askOnce sends a datagram, and waits a moment for its answer.
func askOnce(conn net.Conn, text string) (endpoint string, err error) {
	_ = conn.SetDeadline(time.Now().Add(2 * time.Second))
	if _, err := conn.Write([]byte(text)); err != nil {
		return "", err
	}
	buf := make([]byte, 1<<16)
	for {
		n, err := conn.Read(buf)
		if err != nil {
			return "", err
		}
		endpoint, received, _ := strings.Cut(string(buf[:n]), " ")
		if received == text {
			return endpoint, nil
		}
	}
}

// Descriptors returns the number of this process's open files. It needs Linux.
func Descriptors(t testing.TB) int {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(open)
}
