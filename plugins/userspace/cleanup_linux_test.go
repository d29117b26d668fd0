// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/sdk"
)

// Kernel parameters are set in Active, and restored by Cleanup.
func TestKernelLimits(t *testing.T) {
	onNode(t, func(n node) {
		value := func() string {
			return n.kernel.run("sysctl", "-n", "net.netfilter.nf_conntrack_tcp_timeout_close_wait")
		}
		n.serve()
		before, facts := value(), n.facts()
		facts.Conntrack.TCPCloseWaitTimeout = 77 * time.Second
		n.must(sdk.Update{Node: facts})
		if got := value(); got != "77\n" {
			n.Errorf("the limit is %s", got)
		}
		if names, err := n.Cleanup(n.Context(), sdk.Leftovers{}); err != nil || value() != before {
			n.Errorf("after cleaning up %q (%v) the limit is %s", names, err, value())
		}
	})
}

// Cleanup with KubeProxy removes the rules of kube-proxy's userspace mode, and nothing else. A dry run only describes them.
func TestKernelLeftovers(t *testing.T) {
	onNode(t, func(n node) {
		n.kernel.run("sh", "-c", strings.ReplaceAll(`set -e
			for chain in PORTALS-CONTAINER PORTALS-HOST NODEPORT-CONTAINER NODEPORT-HOST; do PROGRAM -t nat -N KUBE-$chain; done
			PROGRAM -N KUBE-NODEPORT-NON-LOCAL
			PROGRAM -t nat -A KUBE-PORTALS-CONTAINER -d 10.96.0.1/32 -p tcp --dport 443 -j REDIRECT --to-ports 40123
			PROGRAM -t nat -A PREROUTING -d 203.0.113.1/32 -j RETURN
			PROGRAM -t nat -A PREROUTING -m comment --comment "handle ClusterIPs; NOTE: this must be before the NodePort rules" -j KUBE-PORTALS-CONTAINER
			PROGRAM -t nat -A OUTPUT -m comment --comment "handle ClusterIPs; NOTE: this must be before the NodePort rules" -j KUBE-PORTALS-HOST
			PROGRAM -t nat -A PREROUTING -m addrtype --dst-type LOCAL -m comment --comment "handle service NodePorts; NOTE: this must be the last rule in the chain" -j KUBE-NODEPORT-CONTAINER
			PROGRAM -t nat -A OUTPUT -m addrtype --dst-type LOCAL -m comment --comment "handle service NodePorts; NOTE: this must be the last rule in the chain" -j KUBE-NODEPORT-HOST
			PROGRAM -t filter -A INPUT -m comment --comment "Ensure that non-local NodePort traffic can flow" -j KUBE-NODEPORT-NON-LOCAL`, "PROGRAM", "iptables-"+string(n.kernel.backend)+" -w"))
		clean := func(l sdk.Leftovers) []string {
			n.Helper()
			names, err := n.Cleanup(n.Context(), l)
			if err != nil {
				n.Fatal(err)
			}
			return names
		}
		n.kernel.run("nft", "add", "table", "ip6", "kube-proxy")
		before := n.kernel.saved()
		if names := clean(sdk.Leftovers{}); len(names) > 0 || n.kernel.saved() != before {
			n.Errorf("without KubeProxy it removed %q", names)
		}
		named := clean(sdk.Leftovers{KubeProxy: true, DryRun: true})
		if len(named) != 11 || n.kernel.saved() != before {
			n.Errorf("a dry run describes %d: %q", len(named), named)
		}
		if names := clean(sdk.Leftovers{KubeProxy: true}); !slices.Equal(names, named) {
			n.Errorf("it removed %q", names)
		}
		if got := n.kernel.saved(); strings.TrimSpace(got) != "-A PREROUTING -d 203.0.113.1/32 -j RETURN" {
			n.Errorf("left: %q", got)
		}
		if names := clean(sdk.Leftovers{KubeProxy: true}); len(names) > 0 {
			n.Errorf("another call removed %q", names)
		}
	})
}

// If the backend changed while no process ran, a new process removes the rules of the former backend, which redirect packets
// to ports where nothing listens.
func TestKernelBackendChange(t *testing.T) {
	onKernel(t, func(k kernel) {
		former := kernel{k.T, iptables.Legacy, k.dir}
		if k.backend == former.backend {
			former.backend = iptables.NFT
		}
		if _, err := iptables.Open(k.Context(), sdk.IPv4, former.backend); err != nil {
			k.Skip("needs both backends: ", err)
		}
		k.Cleanup(former.flush)
		for _, k := range []kernel{former, k} {
			p := newPlugin(k.dir)
			if _, err := p.Configure(k.Context(), sdk.Setup{Options: k.options()}); err != nil {
				k.Fatal(err)
			}
			_, err := p.Sync(k.Context(), sdk.Update{Full: true, Node: &sdk.Node{Name: "n1", MasqueradeBit: 14}, Set: []sdk.Service{svc("web", "cluster-ip 172.30.0.41:80", "10.128.1.5:8080")}})
			if err := errors.Join(err, p.SetRole(k.Context(), sdk.Active), p.Close()); err != nil {
				k.Fatal(err)
			}
			if rules := k.run("iptables-"+string(k.backend), "-t", "nat", "-S"); !strings.Contains(rules, "172.30.0.41") {
				k.Fatalf("%s has\n%s", k.backend, rules)
			}
		}
		for _, table := range []string{"nat", "filter"} {
			if rules := former.run("iptables-"+string(former.backend), "-t", table, "-S"); strings.Contains(rules, "KUBE-") {
				k.Errorf("%s still has\n%s", former.backend, rules)
			}
		}
	})
}
