// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/pointsman/pointsman/plugins/internal/flows"
	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/sdk"
)

// Node ports are served at the addresses that the node has now, except those that the ipvs mode has bound to its device.
func TestKernelNodePortsFollow(t *testing.T) {
	onNode(t, func(n node) {
		n.serve(svc("web", "node-port 0.0.0.0:30080", podHere+":8080"))
		n.finds("tcp", nodeAddr+":30080", podHere+":8080")
		device := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: flows.IPVSDevice}, PeerName: "other"} // any kind will do
		if err := netlink.LinkAdd(device); err != nil {
			n.Fatal(err)
		}
		defer func() { _ = netlink.LinkDel(device) }()
		n.kernel.run("ip", "address", "add", "192.0.2.88/32", "dev", flows.IPVSDevice)
		n.kernel.run("ip", "address", "add", "192.0.2.77/32", "dev", "lo")
		n.finds("tcp", "192.0.2.77:30080", podHere+":8080")
		if got, err := n.call("tcp", "192.0.2.88:30080"); err == nil {
			n.Errorf("%s answers at an address of %s", got, flows.IPVSDevice)
		}
		n.kernel.run("ip", "address", "del", "192.0.2.77/32", "dev", "lo")
		eventually(n.T, func() error {
			if got, err := n.call("tcp", "192.0.2.77:30080"); err == nil {
				return fmt.Errorf("the address was removed, and %s still answers", got)
			}
			return nil
		})
		n.finds("tcp", nodeAddr+":30080", podHere+":8080")
	})
}

// branch returns a chain with entries of Services.
func (n node) branch() string {
	n.Helper()
	found := ""
	n.do(func() error {
		for _, r := range n.way.redirected() {
			r.rules.EachChain(func(id iptables.ID, text string) {
				if strings.HasPrefix(id.Chain, "KUBE-PV-") && strings.Contains(text, "--comment") {
					found = id.Chain
				}
			})
		}
		return nil
	})
	if found == "" {
		n.Fatal("no chain has entries")
	}
	return found
}

// Inspect does not report the frontends of which the kernel lacks a rule.
func TestKernelInspect(t *testing.T) {
	onNode(t, func(n node) {
		services := manyServices(30)
		for i := range services {
			services[i].Cluster[0].Addr = netip.MustParseAddrPort(podHere + ":8080")
		}
		n.serve(services...)
		if got := len(n.servedLines()); got != 30 {
			n.Fatalf("it reports %d frontends", got)
		}
		program, branch := "iptables-"+string(n.kernel.backend), n.branch()
		n.do(func() error { // so that nothing is repaired
			there := strings.Count(n.kernel.run(program, "-t", "nat", "-S", branch), "--comment")
			n.kernel.run(program, "-t", "nat", "-F", branch)
			if got := n.inspected(); got != 30-there {
				n.Errorf("without the %d rules of %s it reports %d frontends", there, branch, got)
			}
			n.kernel.run(program, "-t", "nat", "-F", toAny.Chain)
			if got := n.inspected(); got != 0 {
				n.Errorf("without the rule that leads to the sockets it reports %d frontends", got)
			}
			return nil
		})
	})
}

// inspected returns the number of frontends that Inspect reports. The caller is in do.
func (n node) inspected() (all int) {
	n.Helper()
	for _, r := range n.way.redirected() {
		there := newFamilyRules(r.rules.Tool)
		if _, err := there.List(n.Context()); err != nil {
			n.Fatal(err)
		}
		all += len(r.inspect(map[sdk.Family]*familyRules{r.family: there}))
	}
	return all
}

// If an address of the machine is added that takes no node ports, as for each new pod, no rules are planned.
func TestKernelAddressesOfPods(t *testing.T) {
	onNode(t, func(n node) {
		port := svc("port", "node-port 0.0.0.0:30080", podHere+":8080")
		n.serve(svc("web", "cluster-ip 172.30.0.41:80", podHere+":8080"), port)
		n.do(func() error {
			r := n.way.redirected()[0]
			own, read := r.machine.addresses, r.addresses
			defer func() { r.process.addresses = read }()
			for added, want := range map[string]bool{"10.180.0.99/32": false, "fe80::99/64": false, "192.0.2.99/32": true} {
				now := append(slices.Clone(own), address{prefix: netip.MustParsePrefix(added)})
				r.process.addresses = func() ([]address, error) { return now, nil }
				r.readAt = time.Time{}
				if found := r.Probe(n.Context()); found.Moved != want {
					n.Errorf("with %s the finding is %+v", added, found)
				}
				if got := r.machine.own[netip.MustParsePrefix(added).Addr()]; got == want {
					n.Errorf("%s is an address of the machine: %v", added, got)
				}
			}
			return nil
		})
	})
}
