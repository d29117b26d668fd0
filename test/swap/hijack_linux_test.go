// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
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
	n := newNode(t, "iptables")
	n.write("services/hijacker.yaml", hijacker)
	n.start()
	expect := func(served ...string) {
		t.Helper()
		for _, addr := range []string{"203.0.113.5", "192.0.2.10", "10.180.0.1", "172.30.0.10", "169.254.169.254", "172.30.0.67"} {
			want := slices.Contains(served, addr)
			n.until(fmt.Sprintf("%s is served: %t", addr, want), func() error {
				if err := n.tryCall(pod, netip.AddrPortFrom(netip.MustParseAddr(addr), 7777)); (err == nil) != want {
					return fmt.Errorf("%s answers: %t, %w", addr, !want, err)
				}
				return nil
			})
		}
	}
	restartWith := func(more string) {
		n.more = more
		n.writeMode("iptables")
		n.end(syscall.SIGTERM)
		n.start()
	}
	expect("203.0.113.5") // which nothing else has
	if n.tryCall(pod, netip.MustParseAddrPort("172.30.0.67:7778")) == nil {
		t.Error("a port is served on another Service's cluster IP")
	}
	for _, part := range []string{"192.0.2.10 is this node's own", "endpoint 169.254.169.254 is link-local; it is not used, nor are 2 other endpoints", "172.30.0.67:7778 belongs to Service evil/inward"} {
		n.waitForEvent(part)
	}
	restartWith("externalIPs: {nodeAddresses: warn}\n")
	expect("203.0.113.5", "192.0.2.10")
	n.waitForEvent("192.0.2.10 is an address of this node; it is served")
	if out, err := n.verb("status"); err == nil || !strings.Contains(out, "W020") {
		t.Errorf("status: %v, %s", err, out)
	}
	restartWith("externalIPs: {allow: [192.0.2.10/32]}\n")
	expect("192.0.2.10")
}

// tryCall calls once from an address, and returns why there was no answer.
func (n *node) tryCall(from netip.Addr, to netip.AddrPort) error {
	n.Helper()
	return n.caller("a caller", from, to).Try(n.Context())
}
