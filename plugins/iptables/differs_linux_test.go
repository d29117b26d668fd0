// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"strings"
	"testing"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
)

// TestKernelRulesBesideKubeProxy holds what docs/kube-proxy.md says of our rules and those of the
// real kube-proxy for the same Services: which endpoints have chains of their own, and in which
// words comments differ.
func TestKernelRulesBesideKubeProxy(t *testing.T) {
	world(t) // it has the loopback up
	onKernel(t, func(k kernel) {
		s := beforeUs(scenario(k.T, "node-port").Node)
		nat := func() string { return k.run("iptables-"+string(k.backend), "-t", "nat", "-S") }
		url := serveAPI(k, s.Services)
		_, metrics, stop := kubeProxy(k, k.backend, url, "iptables")
		k.eventually("kube-proxy has written its rules", func() bool { return synced(metrics) && strings.Contains(nat(), "172.30.0.42") })
		theirs := nat()
		stop()
		for i := range s.Services {
			s.Services[i] = asNode(s.Services[i])
		}
		k.sync(k.start(), s.Update(1))
		ours := nat()

		plain, sticky := s.Services[0], s.Services[1]
		label := iptables.Label(plain.Name)
		for what, c := range map[string]struct {
			text         string
			theirs, ours bool
		}{
			"a chain of an endpoint of this node":          {"-N " + endpointChain(plain.Name, plain.Cluster[0].Addr) + "\n", true, true},
			"a chain of an endpoint elsewhere":             {"-N " + endpointChain(plain.Name, plain.Cluster[1].Addr) + "\n", true, false},
			"a chain of one that clients stay with":        {"-N " + endpointChain(sticky.Name, sticky.Cluster[1].Addr) + "\n", true, true},
			"the comment of a rule that leads to one":      {`"` + label + ` -> 10.180.1.1:8080"`, true, true},
			"the comment of a node port's entry, its kind": {`"` + label + ` node-port"`, false, true},
			"the comment of a node port's entry, without":  {`"` + label + `" -m tcp --dport 30080`, true, false},
		} {
			if got := strings.Contains(theirs, c.text); got != c.theirs {
				t.Errorf("%s: kube-proxy has %q: %t\n%s", what, c.text, got, theirs)
			}
			if got := strings.Contains(ours, c.text); got != c.ours {
				t.Errorf("%s: we have %q: %t\n%s", what, c.text, got, ours)
			}
		}
	})
}
