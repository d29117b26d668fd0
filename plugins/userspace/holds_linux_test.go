// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
)

// TestKernelNobodysDevice: an address that a dataplane of another kind put on its
// own device takes no node ports, although the node has it and the range says so.
func TestKernelNobodysDevice(t *testing.T) {
	onNode(t, func(n node) {
		n.serve(svc("web", "node-port 0.0.0.0:30080", podHere+":8080"))
		n.finds("tcp", nodeAddr+":30080", podHere+":8080")
		device := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: ipvsDevice}, PeerName: "other"} // any kind will do
		if err := netlink.LinkAdd(device); err != nil {
			n.Fatal(err)
		}
		defer func() { _ = netlink.LinkDel(device) }()
		n.kernel.run("ip", "address", "add", "192.0.2.88/32", "dev", ipvsDevice)
		n.kernel.run("ip", "address", "add", "192.0.2.77/32", "dev", "lo")
		defer n.kernel.run("ip", "address", "del", "192.0.2.77/32", "dev", "lo")
		n.finds("tcp", "192.0.2.77:30080", podHere+":8080") // the addresses were read since
		if got, err := n.calls("tcp", "192.0.2.88:30080"); err == nil {
			n.Errorf("%s answers at an address of %s", got, ipvsDevice)
		}
	})
}

// TestKernelTakenAway: whatever somebody takes away is put back within 5 s, and
// counted.
func TestKernelTakenAway(t *testing.T) {
	onNode(t, func(n node) {
		services := crowdOf(30, sparse)
		for i := range services {
			services[i].Cluster[0].Addr = netip.MustParseAddrPort(podHere + ":8080")
		}
		services = append(services, svc("gone", "cluster-ip 172.30.0.43:80", ""), udp(svc("dns", "cluster-ip 172.30.0.10:53", podHere+":8080")))
		n.serve(services...)
		program := "iptables-" + string(n.kernel.backend)
		branch := n.branch()
		for name, commands := range map[string][]string{
			"everything": {"-t nat -F", "-t filter -F"},
			"a rule":     {"-t nat -D " + branch + " 1"},
			"another":    {"-t nat -R " + branch + " 1 -p tcp -m comment --comment theirs -j RETURN"},
			"the guard":  {"-t filter -F KUBE-NODEPORT-NON-LOCAL"},
			"a reload":   nil, // as a firewall does it: all tables written anew, other chains gone
		} {
			before, repaired := n.kernel.saved(), n.status.repaired.Load()
			began := time.Now()
			for _, c := range commands {
				n.kernel.run(program, strings.Fields(c)...)
			}
			if commands == nil {
				restore := exec.Command(program+"-restore", "-w")
				restore.Stdin = strings.NewReader("*nat\nCOMMIT\n*filter\n:INPUT ACCEPT\n-A FORWARD -d 203.0.113.9/32 -j DROP\nCOMMIT\n")
				if out, err := restore.CombinedOutput(); err != nil {
					n.Fatalf("%v: %s", err, out)
				}
			}
			eventually(n.T, func() error {
				now := strings.ReplaceAll(n.kernel.saved(), "-A FORWARD -d 203.0.113.9/32 -j DROP\n", "")
				if !slices.Equal(sorted(now), sorted(before)) {
					return fmt.Errorf("%s: the rules are\n%s\nand were\n%s", name, now, before)
				}
				return nil
			})
			n.Logf("%s: %s", name, time.Since(began).Round(100*time.Millisecond))
			eventually(n.T, func() error { // it is counted when all is written
				if n.status.repaired.Load() == repaired {
					return fmt.Errorf("%s: nobody counted it", name)
				}
				return nil
			})
			n.kernel.drop(program)
		}
		n.finds("tcp", services[7].Frontends[0].Addr.String(), podHere+":8080")
	})
}

// drop takes out what the reload has put in.
func (k kernel) drop(program string) {
	_, _ = exec.Command(program, "-w", "-D", "FORWARD", "-d", "203.0.113.9/32", "-j", "DROP").CombinedOutput()
}

func sorted(text string) []string { return slices.Sorted(strings.Lines(text)) }

// branch is a chain in which entries of Services stand.
func (n node) branch() string {
	n.Helper()
	for _, s := range n.way.rules.sides {
		for id, text := range s.ObservedAll() {
			if strings.HasPrefix(id.Chain, "KUBE-PV-") && strings.Contains(text, "--comment") {
				return id.Chain
			}
		}
	}
	n.Fatal("there is no tree")
	return ""
}

// TestKernelInspectSees what is missing in the kernel: the frontends of a branch
// that was taken away, and no others.
func TestKernelInspectSees(t *testing.T) {
	onNode(t, func(n node) {
		n.stop() // nobody repairs meanwhile
		n.follows.Wait()
		services := crowdOf(30, sparse)
		for i := range services {
			services[i].Cluster[0].Addr = netip.MustParseAddrPort(podHere + ":8080")
		}
		n.serve(services...)
		if got := len(n.told()); got != 30 {
			n.Fatalf("it tells of %d frontends", got)
		}
		program, branch := "iptables-"+string(n.kernel.backend), n.branch()
		there := strings.Count(n.kernel.run(program, "-t", "nat", "-S", branch), "--comment")
		n.kernel.run(program, "-t", "nat", "-F", branch)
		if got := len(n.told()); got != 30-there {
			n.Errorf("without the %d of %s it tells of %d frontends", there, branch, got)
		}
		n.kernel.run(program, "-t", "nat", "-F", toAny.Chain)
		if got := n.told(); len(got) != 0 {
			n.Errorf("with no way to the sockets it tells of %q", got)
		}
	})
}

// TestKernelAddressesOfPods: an address that comes or goes costs nothing when it takes
// no node ports, as those of pods' devices; else no more than the node ports do.
func TestKernelAddressesOfPods(t *testing.T) {
	onNode(t, func(n node) {
		n.stop() // look is called by hand
		n.follows.Wait()
		port := svc("port", "node-port 0.0.0.0:30080", podHere+":8080")
		n.serve(svc("web", "cluster-ip 172.30.0.41:80", podHere+":8080"), port)
		own := n.ground.addresses
		for added, want := range map[string]int{"10.180.0.99/32": 0, "fe80::99/64": 0, "192.0.2.99/32": 1} {
			n.setGround(newGround(*n.facts(), append(slices.Clone(own), address{prefix: netip.MustParsePrefix(added)})))
			if got := n.reframe(false); len(got) != want {
				n.Errorf("%s touches %v", added, got)
			}
			n.setGround(newGround(*n.facts(), own))
			n.reframe(false)
		}
	})
}
