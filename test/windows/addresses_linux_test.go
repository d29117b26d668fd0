// SPDX-License-Identifier: Apache-2.0

package windows

import (
	"os"
	"strings"
)

// vip is a Service whose ClusterIP no interface has.
const vip = `apiVersion: v1
kind: Service
metadata: {name: vip, namespace: shop}
spec:
  clusterIP: 10.96.77.10
  ports: [{name: http, port: 7780, targetPort: 7781}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: vip-1, namespace: shop, labels: {kubernetes.io/service-name: vip}}
addressType: IPv4
ports: [{name: http, port: 7781}]
endpoints:
- addresses: [127.91.1.1]
`

// unassignableAddress creates a Service whose ClusterIP the plugin cannot add, because wine 8.0 lacks the call. The host
// must report the Service with this reason, and continue to serve the others. pointsman-dataplane-userspace cleanup
// must not remove the address, because the plugin did not add it.
func (n *node) unassignableAddress() {
	n.Helper()
	n.write("manifests/vip.yaml", vip)
	n.status(2, "the address 10.96.77.10 cannot be added")
	if out, _ := n.verb("status"); !strings.Contains(out, "UnicastIpAddressEntry") || !strings.Contains(out, "addresses to never") {
		n.Errorf("status does not name the failed call and the option that disables it:\n%s", out)
	}
	n.calls.answered(n.T, endpoints[:2]...)
	out, exit := n.run("pointsman-dataplane-userspace", "cleanup")
	if exit != 0 || strings.Contains(out, "10.96.77.10") {
		n.Errorf("cleanup of the plugin: exit %d\n%s", exit, out)
	}
	n.calls.answered(n.T, endpoints[:2]...)
	if err := os.Remove(n.path("manifests/vip.yaml")); err != nil {
		n.Fatal(err)
	}
	n.status(0, "is active")
}
