// SPDX-License-Identifier: Apache-2.0

package test

import (
	"fmt"
	"strings"
)

// backendPort is the port of all endpoints. Few other programs listen on it, or on the ports of the Services, on all
// addresses of a machine.
const backendPort = 19000

// serviceOf returns the manifest of a Service in the namespace ns with one port.
func serviceOf(name, addr, protocol string, port int) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: %s, namespace: ns}
spec:
  clusterIP: "%s"
  ports:
  - {name: p, port: %d, protocol: %s}
---
`, name, addr, port, protocol)
}

// sliceOf returns the manifest of an EndpointSlice of that Service.
func sliceOf(name, protocol string, endpoints ...string) string {
	family := "IPv4"
	if strings.Contains(strings.Join(endpoints, ""), ":") {
		family = "IPv6"
	}
	return fmt.Sprintf(`apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[1]s-1, namespace: ns, labels: {kubernetes.io/service-name: %[1]s}}
addressType: %[2]s
ports:
- {name: p, port: %[3]d, protocol: %[4]s}
endpoints:%[5]s
---
`, name, family, backendPort, protocol, endpointLines(endpoints))
}

func endpointLines(addrs []string) string {
	if len(addrs) == 0 {
		return " []"
	}
	var b strings.Builder
	for _, a := range addrs {
		fmt.Fprintf(&b, "\n- addresses: [%q]", a)
	}
	return b.String()
}

// tcpService returns both manifests for TCP.
func tcpService(name, addr string, port int, endpoints ...string) string {
	return serviceOf(name, addr, "TCP", port) + sliceOf(name, "TCP", endpoints...)
}

// at returns an endpoint's address with backendPort.
func at(addr string) string { return fmt.Sprintf("%s:%d", addr, backendPort) }
