// SPDX-License-Identifier: Apache-2.0

package beside

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"time"
)

// The results of a call that no endpoint answers. Otherwise, the result is "ENDPOINT saw CALLER".
const (
	refused = "refused" // by a reply
	dropped = "dropped" // nothing answered
	passed  = "passed"  // no rule matched: the router outside has no route

	unroutable = "unroutable" // the node has no route to the destination from the source address
)

// A caller is the source of a call.
type caller struct {
	name  string
	place string
	addrs [2]netip.Addr // zero: the kernel's choice
}

var callers = []caller{
	called("client"), called("other"), called("near0"), called("near1"), called("far0"), called("node"),
	{"node, any address", "node", [2]netip.Addr{}},
}

// callersAtEdges are processes of the node that call from an address that the Node object does not have, from an
// address of a load balancer, and from loopback.
var callersAtEdges = []caller{{"node, second address", "node", secondAddrs}, {"node, bound address", "node", balancerAddrs[0]}, loopbackCaller}

var loopbackCaller = caller{"node, loopback", "node", [2]netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1")}}

func called(name string) caller { return caller{name, name, at(name).addrs} }

// call calls once, waits up to wait for an answer, and returns the result.
func (w *world) call(ctx context.Context, from caller, to target, wait time.Duration) string {
	addr := from.addrs[to.family()]
	if strings.HasPrefix(to.network, "icmp") {
		return w.ping(from.place, addr, to.addr.Addr(), wait)
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	conn, err := w.hosts[from.place].Dial(ctx, to.network, addr, to.addr)
	if err != nil {
		return failed(err)
	}
	defer conn.Close()
	line, err := ask(conn, to.size, wait)
	if err != nil {
		return failed(err)
	}
	return line
}

// ask asks an endpoint for its address and for the client address that it sees. Over UDP, the question and the answer have
// at least size bytes.
func ask(conn net.Conn, size int, wait time.Duration) (string, error) {
	if err := conn.SetDeadline(time.Now().Add(wait)); err != nil {
		return "", err
	}
	if conn.LocalAddr().Network() == "udp" { // over TCP, an endpoint sends its answer unasked
		_, err := conn.Write(append([]byte("who\n"), make([]byte, max(0, size-len("who\n")))...))
		if err != nil && !errors.Is(err, syscall.EPERM) { // EPERM: a rule of the node stopped the datagram; Read may return more
			return "", err
		}
	}
	buf := make([]byte, max(256, size))
	n, err := conn.Read(buf)
	if err != nil {
		return "", err
	}
	if n < size {
		return "", fmt.Errorf("the answer has %d of %d bytes", n, size)
	}
	me, seen, _ := strings.Cut(strings.TrimSpace(string(buf[:n])), " ")
	peer, err := netip.ParseAddrPort(seen)
	if err != nil {
		return "", fmt.Errorf("the endpoint answers %q", buf[:n])
	}
	return me + " saw " + placeOf(peer.Addr().Unmap()), nil
}

// placeOf returns the place that has an address.
func placeOf(a netip.Addr) string {
	for _, p := range places {
		if p.addrs[0] == a || p.addrs[1] == a {
			return p.name
		}
	}
	if secondAddrs[0] == a || secondAddrs[1] == a {
		return "node"
	}
	return a.String()
}

func failed(err error) string {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return dropped
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ECONNRESET):
		return refused
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EACCES):
		return passed
	case errors.Is(err, syscall.EINVAL):
		return unroutable
	}
	return err.Error()
}
