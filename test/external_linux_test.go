// SPDX-License-Identifier: Apache-2.0

package test

import (
	"strings"
	"testing"
)

// TestExternalIPAtNode gives a Service an address of the node as external IP, where the operator
// is to be warned of that: it is served, and status and an event name it and the field to set. A
// relay without rules leaves a process the port that it had first.
func TestExternalIPAtNode(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	backend(t, at(s.net+"101"))
	backend(t, s.net+"5:18081")
	s.manifest("node.yaml", `apiVersion: v1
kind: Node
metadata: {name: n1}
status: {addresses: [{type: InternalIP, address: NET.5}]}
`)
	external := func(name, ip, port string) {
		s.manifest(name+".yaml", strings.NewReplacer("spec:", "spec:\n  externalIPs: [NET.5]", "port: 18080,", "port: "+port+",").Replace(tcpService(name, ip, 18080, "NET.101")))
	}
	external("web", "NET.10", "18080")
	external("late", "NET.11", "18081")
	s.config("hostnameOverride: n1\nexternalIPs: {nodeAddresses: warn}\n")
	s.start()
	s.served("tcp", s.net+"5:18080", at(s.net+"101"))
	for _, name := range []string{"ns/web", "ns/late"} {
		s.until("status tells of "+name, func() error { return s.warning("W020", "Service "+name+": external IP "+s.net+"5") })
	}
	s.until("there is an event", func() error { return s.event("ExternalIPOfNode", "externalIPs.nodeAddresses") })
	s.until("status says what is not served", func() error { return s.warning("W004", "1 failed") })
	s.served("tcp", s.net+"5:18081", s.net+"5:18081")
}
