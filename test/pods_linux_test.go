// SPDX-License-Identifier: Apache-2.0

package test

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"
)

// TestPodsOfOtherNodes: in userspace mode, with one range of pods for all nodes, a pod of
// another node gets the Local list and a pod of this node the Cluster list; also one outside
// the Node's podCIDR, once endpoints show that pods have such addresses here.
func TestPodsOfOtherNodes(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	for _, end := range []string{"101", "202"} {
		backend(t, at(s.net+end))
	}
	s.manifest("node.yaml", `apiVersion: v1
kind: Node
metadata: {name: n1}
spec: {podCIDR: NET.64/26}
status: {addresses: [{type: InternalIP, address: NET.5}]}
`)
	s.manifest("web.yaml", strings.Replace(serviceOf("web", "NET.10", "TCP", 18080), "spec:",
		"status: {loadBalancer: {ingress: [{ip: NET.11}]}}\nspec:\n  type: LoadBalancer\n  externalTrafficPolicy: Local", 1)+
		onNode("n1", sliceOf("web", "TCP", "NET.101"))+
		strings.Replace(onNode("n2", sliceOf("web", "TCP", "NET.202")), "web-1", "web-2", 1))
	s.config(fmt.Sprintf("hostnameOverride: n1\ndetectLocal: {clusterCIDRs: [%s0/24]}\n", s.net))
	s.start()
	s.serving()
	const here, outside = "70", "210" // within the podCIDR, and not
	s.answered(here, "101 202")
	s.answered(outside, "101")

	s.manifest("stray.yaml", onNode("n1", sliceOf("stray", "TCP", "NET.199")))
	s.answered(outside, "101 202")
	s.answered(here, "101 202")
	s.remove("services/stray.yaml")
	s.answered(outside, "101")
}

// onNode is the manifest of an EndpointSlice with endpoints on that node.
func onNode(node, slice string) string {
	return strings.ReplaceAll(slice, `"]`, "\"]\n  nodeName: "+node)
}

// answered has a caller call the load balancer until exactly these endpoints answer it.
func (s *system) answered(from, want string) {
	s.t.Helper()
	dialer := net.Dialer{Timeout: 5 * time.Second, LocalAddr: &net.TCPAddr{IP: net.ParseIP(s.net + from)}}
	s.until("endpoints "+want+" answer "+from, func() error {
		answers := make(map[string]bool)
		for range 4 {
			conn, err := dialer.DialContext(s.t.Context(), "tcp", s.net+"11:18080")
			if err != nil {
				return err
			}
			_ = conn.SetDeadline(time.Now().Add(long))
			line, err := bufio.NewReader(conn).ReadString('\n')
			conn.Close()
			if err != nil {
				return err
			}
			host, _, _ := net.SplitHostPort(strings.TrimSpace(line))
			answers[strings.TrimPrefix(host, s.net)] = true
		}
		var got []string
		for _, end := range []string{"101", "202"} {
			if answers[end] {
				got = append(got, end)
			}
		}
		if strings.Join(got, " ") != want {
			return fmt.Errorf("answered by %v", answers)
		}
		return nil
	})
}
