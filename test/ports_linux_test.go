// SPDX-License-Identifier: Apache-2.0

package test

import (
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
)

// TestPortInUse has this process listen on a Service's node port: status and an event
// say so, as long as it does. What the plugin itself listens on is no collision.
func TestPortInUse(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	backend(t, at(s.net+"101"))
	s.manifest("node.yaml", `apiVersion: v1
kind: Node
metadata: {name: n1}
status: {addresses: [{type: InternalIP, address: NET.5}]}
`)
	l, err := net.Listen("tcp4", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	s.manifest("balanced.yaml", strings.Replace(tcpService("balanced", "NET.10", 18080, "NET.101"), "spec:",
		"status: {loadBalancer: {ingress: [{ip: NET.5}]}}\nspec:\n  type: LoadBalancer", 1))
	s.manifest("web.yaml", strings.NewReplacer("spec:", "spec:\n  type: NodePort", "port: 18080,", fmt.Sprintf("port: 18080, nodePort: %d,", port)).
		Replace(tcpService("web", "NET.11", 18080, "NET.101")))
	s.config("hostnameOverride: n1\n")
	s.start()
	s.served("tcp", s.net+"5:18080", at(s.net+"101"))
	want := fmt.Sprintf("node port %d/tcp of Service ns/web is also what", port)
	s.until("status tells of it", func() error { return s.warning("W019", want) })
	s.until("it names the process", func() error { return s.warning("W019", fmt.Sprintf("pid %d, listens on", os.Getpid())) })
	s.until("there is an event", func() error { return s.event("PortInUse", want) })
	st, err := s.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range st.Warnings {
		if w.Code == "W019" && strings.Contains(w.Text, "ns/balanced") {
			t.Errorf("the plugin's own socket is a collision: %s", w.Text)
		}
	}
	l.Close()
	s.until("status has forgotten it", func() error { return s.noWarning("W019") })
}
