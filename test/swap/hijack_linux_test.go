// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"
)

// hijacker has Services that claim an address of another Service and one that nothing has, a Service with endpoints on
// the node itself, and a backend that listens at all addresses.
const hijacker = `
apiVersion: v1
kind: Service
metadata: {name: hijacker, namespace: evil}
spec:
  clusterIP: 172.30.0.66
  externalIPs: [192.0.2.10, 10.180.0.1, 172.30.0.10, 172.30.0.67, 169.254.169.254, 203.0.113.5]
  ports: [{name: p, port: 7777}, {name: q, port: 7778}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: hijacker-1, namespace: evil, labels: {kubernetes.io/service-name: hijacker}}
addressType: IPv4
ports: [{name: p, port: 8080}, {name: q, port: 8080}]
endpoints: [{addresses: [10.180.1.1]}]
---
apiVersion: v1
kind: Service
metadata: {name: inward, namespace: evil}
spec: {clusterIP: 172.30.0.67, ports: [{name: p, port: 7777}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: inward-1, namespace: evil, labels: {kubernetes.io/service-name: inward}}
addressType: IPv4
ports: [{name: p, port: 8080}]
endpoints: [{addresses: [169.254.169.254]}, {addresses: [224.0.0.5]}, {addresses: [0.0.0.0]}]
`

// TestKernelHijack checks what no user may attract with a Service (CVE-2020-8554) or use as an endpoint (CVE-2021-25737),
// unless the operator allows it.
func TestKernelHijack(t *testing.T) {
	const mode = "iptables"
	n := newNode(t, mode)
	n.write("services/hijacker.yaml", hijacker)
	n.start()
	n.until("the free address is served", func() error { return n.tryHijacked("203.0.113.5") })
	for _, claimed := range []string{"192.0.2.10", "10.180.0.1", "172.30.0.10", "169.254.169.254", "172.30.0.67"} {
		if n.tryHijacked(claimed) == nil {
			t.Errorf("%s is served", claimed)
		}
	}
	theirs := netip.MustParseAddrPort("172.30.0.67:7778")
	if n.tryCall(pod, theirs) == nil {
		t.Errorf("%s is served, on another Service's cluster IP", theirs)
	}
	for _, part := range []string{"192.0.2.10 is this node's own", "169.254.169.254 is link-local", "224.0.0.5 is multicast", "0.0.0.0 is unspecified", "172.30.0.67:7778 belongs to Service evil/inward"} {
		n.waitForEvent(part)
	}
	n.restartWith(mode, "externalIPs: {nodeAddresses: warn}\n")
	n.until("the node's own address is served", func() error { return n.tryHijacked("192.0.2.10") })
	for _, claimed := range []string{"10.180.0.1", "172.30.0.10", "169.254.169.254", "172.30.0.67"} {
		if n.tryHijacked(claimed) == nil {
			t.Errorf("%s is served beside the node's own address", claimed)
		}
	}
	n.waitForEvent("192.0.2.10 is an address of this node; it is served")
	if out, err := n.verb("status"); err == nil || !strings.Contains(out, "W020") {
		t.Errorf("status: %v, %s", err, out)
	}
	n.restartWith(mode, "externalIPs: {allow: [192.0.2.10/32]}\n")
	n.until("what is allowed is served", func() error { return n.tryHijacked("192.0.2.10") })
	n.until("what is not allowed is served no more", func() error {
		if n.tryHijacked("203.0.113.5") == nil {
			return errors.New("it is")
		}
		return nil
	})
}

// restartWith restarts the host with additional settings.
func (n *node) restartWith(mode, more string) {
	n.Helper()
	n.more = more
	n.writeMode(mode)
	n.end(syscall.SIGTERM)
	n.start()
}

// tryHijacked calls the hijacker's port at an address, from a pod.
func (n *node) tryHijacked(addr string) error {
	n.Helper()
	return n.tryCall(pod, netip.AddrPortFrom(netip.MustParseAddr(addr), 7777))
}

// tryCall calls once, from an address or, if it is invalid, from the node itself, and returns why there was no answer.
func (n *node) tryCall(from netip.Addr, to netip.AddrPort) error {
	n.Helper()
	ctx, cancel := context.WithTimeout(n.Context(), silence)
	defer cancel()
	var conn net.Conn
	var err error
	if from.IsValid() {
		host, hostErr := n.testbed.Host(from)
		if hostErr != nil {
			n.Fatal(hostErr)
		}
		conn, err = host.Dial(ctx, "tcp4", from, to)
	} else {
		conn, err = new(net.Dialer).DialContext(ctx, "tcp4", to.String())
	}
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(silence))
	if _, err := conn.Write([]byte("!")); err != nil {
		return err
	}
	_, err = io.ReadFull(conn, make([]byte, 1))
	return err
}
