// SPDX-License-Identifier: Apache-2.0

package field

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest/netns"
	"github.com/pointsman/pointsman/test/eventually"
)

// Beside tests a configured dataplane on the node of a testbed while the node also has the rules and addresses that
// docs/operating.md describes: those of NodeLocal DNS, Docker, ufw, firewalld and Istio. tool is the iptables program of
// the dataplane's backend. If inputAccepts is set, the node port answers without a rule of its own in INPUT. If
// leavesClusterIPs is set, the dataplane does not translate a ClusterIP at which a process of the node listens.
func Beside(t *testing.T, g *netns.Testbed, d sdk.Dataplane, tool string, inputAccepts, leavesClusterIPs bool) {
	t.Helper()
	n := sharedNode{node{t, g, d}, tool + " -w "}
	n.nodeLocalDNS(leavesClusterIPs)
	n.forwardDrops()
	n.inputDrops(inputAccepts)
	n.firewalld(inputAccepts)
	n.ambientProbes()
}

// A sharedNode is a node on which another program has rules.
type sharedNode struct {
	node
	tool string
}

// outside is a client outside the cluster: its calls to node ports are masqueraded.
var outside = netip.MustParseAddr("198.18.0.7")

// ask connects from a host. It returns the endpoint that answers, and the client address that the endpoint reports.
func (n sharedNode) ask(h *netns.Host, from netip.Addr, to netip.AddrPort) (endpoint, client netip.AddrPort, err error) {
	ctx, cancel := context.WithTimeout(n.Context(), 2*time.Second)
	defer cancel()
	conn, err := h.Dial(ctx, "tcp", from, to)
	if err != nil {
		return endpoint, client, err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(2 * time.Second))
	line, err := bufio.NewReader(conn).ReadString('\n')
	words := strings.Fields(line)
	if err != nil || len(words) != 2 {
		return endpoint, client, fmt.Errorf("%s answers %q: %w", to, line, err)
	}
	endpoint, err = netip.ParseAddrPort(words[0])
	client, bad := netip.ParseAddrPort(words[1])
	return endpoint, client, errors.Join(err, bad)
}

// answers waits until the client outside reaches a Service or, if served is false, until it does not.
func (n sharedNode) answers(what string, to netip.AddrPort, served bool) {
	n.Helper()
	host, err := n.Host(outside)
	if err != nil {
		n.Fatal(err)
	}
	eventually.Succeeds(n, what, func() error {
		switch endpoint, _, err := n.ask(host, outside, to); {
		case served:
			return err
		case err == nil:
			return fmt.Errorf("%s answers", endpoint)
		}
		return nil
	})
}

// nodeLocalDNS lets a process listen at a ClusterIP as NodeLocal DNS does: the address is on an interface of its own,
// and connections to it are not tracked. Callers reach this process, whether it or the Service was created first. After
// the process has ended, they reach the endpoints of the Service.
func (n sharedNode) nodeLocalDNS(leavesClusterIPs bool) {
	n.Helper()
	s, leave := n.place("cluster-ip")
	defer leave()
	at := frontend(s, sdk.ClusterIP)
	pod := netip.MustParseAddr("10.180.0.9")
	host, err := n.Host(pod)
	if err != nil {
		n.Fatal(err)
	}
	calls := map[string]func() (netip.AddrPort, netip.AddrPort, error){
		"a pod":    func() (netip.AddrPort, netip.AddrPort, error) { return n.ask(host, pod, at) },
		"the node": func() (netip.AddrPort, netip.AddrPort, error) { return n.ask(n.Node(), s.Node.Addrs[0], at) },
	}
	expect := func(when string, cache bool) {
		n.Helper()
		for who, call := range calls {
			eventually.Succeeds(n, when+" "+who+" is answered", func() error {
				endpoint, _, err := call()
				if err == nil && (endpoint == at) != cache {
					err = fmt.Errorf("%s answers", endpoint)
				}
				return err
			})
		}
	}
	rules := []string{
		fmt.Sprintf("-t raw %%s PREROUTING -d %s -p tcp --dport %d -j CT --notrack", at.Addr(), at.Port()),
		fmt.Sprintf("-t raw %%s OUTPUT -d %s -p tcp --dport %d -j CT --notrack", at.Addr(), at.Port()),
		fmt.Sprintf("-t raw %%s OUTPUT -s %s -p tcp --sport %d -j CT --notrack", at.Addr(), at.Port()),
		fmt.Sprintf("%%s INPUT -d %s -p tcp --dport %d -j ACCEPT", at.Addr(), at.Port()),
		fmt.Sprintf("%%s OUTPUT -s %s -p tcp --sport %d -j ACCEPT", at.Addr(), at.Port()),
	}
	for _, first := range []string{"the Service", "the cache"} {
		if first == "the Service" {
			n.update(s.Update(1))
			expect("before the cache is created,", false)
		}
		n.must("ip link add nodelocaldns type veth peer name nodelocalend", "ip address add "+at.Addr().String()+"/32 dev nodelocaldns")
		for _, rule := range rules {
			n.must(n.tool + fmt.Sprintf(rule, "-I"))
		}
		cache, err := netns.Answer(n.Context(), n.Node(), sdk.TCP, at)
		if err != nil {
			n.Fatal(err)
		}
		if first == "the cache" {
			n.update(s.Update(1))
		}
		if leavesClusterIPs {
			expect("while the cache listens, and "+first+" was created first,", true)
		} else {
			eventually.Succeeds(n, "the dataplane translates the ClusterIP at which the cache listens", func() error {
				if endpoint, _, err := calls["a pod"](); err == nil && endpoint == at {
					return errors.New("the cache answers")
				}
				return nil
			})
		}
		for _, rule := range rules {
			n.must(n.tool + fmt.Sprintf(rule, "-D"))
		}
		cache.Close()
		n.must("ip link del nodelocaldns")
		expect("after the cache has ended,", false)
		none := s
		none.Services = nil
		n.update(none.Update(1))
	}
}

// forwardDrops checks that the node port answers while FORWARD accepts only established connections, as Docker and ufw
// configure it.
func (n sharedNode) forwardDrops() {
	n.Helper()
	s, leave := n.place("node-port")
	defer leave()
	n.update(s.Update(1))
	n.must(n.tool+"-P FORWARD DROP", n.tool+"-A FORWARD -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT")
	defer n.must(n.tool+"-P FORWARD ACCEPT", n.tool+"-D FORWARD -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT")
	n.answers("the node port answers while FORWARD drops", netip.AddrPortFrom(s.Node.Addrs[0], frontend(s, sdk.NodePort).Port()), true)
}

// inputDrops checks the node port while INPUT accepts only established connections, as ufw configures it. Without
// inputAccepts, the node port answers only after INPUT has a rule for it.
func (n sharedNode) inputDrops(inputAccepts bool) {
	n.Helper()
	s, leave := n.place("node-port")
	defer leave()
	n.update(s.Update(1))
	at := netip.AddrPortFrom(s.Node.Addrs[0], frontend(s, sdk.NodePort).Port())
	n.must(n.tool+"-A INPUT -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT", n.tool+"-P INPUT DROP")
	defer n.must(n.tool+"-P INPUT ACCEPT", n.tool+"-D INPUT -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT")
	n.answers(fmt.Sprintf("the node port answers while INPUT drops: %v", inputAccepts), at, inputAccepts)
	if rule := fmt.Sprintf("INPUT -p tcp --dport %d -j ACCEPT", at.Port()); !inputAccepts {
		n.must(n.tool + "-I " + rule)
		defer n.must(n.tool + "-D " + rule)
		n.answers("the node port answers with a rule of its own in INPUT", at, true)
	}
}

// firewalld checks the node port beside firewalld's chains, which accept established and translated (dnat) packets and
// reject all others.
func (n sharedNode) firewalld(inputAccepts bool) {
	n.Helper()
	if out, err := n.run("nft add table inet firewalld"); errors.Is(err, exec.ErrNotFound) || strings.Contains(out, "not supported") {
		n.Logf("not tested beside firewalld: this needs nft and inet tables, which user-mode Linux lacks: %v: %s", err, out)
		return
	} else if err != nil {
		n.Fatal(err, out)
	}
	s, leave := n.place("node-port")
	defer leave()
	n.update(s.Update(1))
	defer n.must("nft delete table inet firewalld")
	for chain, hook := range map[string]string{"filter_FORWARD": "forward", "filter_INPUT": "input"} {
		n.must("nft add chain inet firewalld "+chain+" { type filter hook "+hook+" priority 10 ; policy accept ; }",
			"nft add rule inet firewalld "+chain+" ct state established,related accept", "nft add rule inet firewalld "+chain+" ct status dnat accept",
			"nft add rule inet firewalld "+chain+" iifname lo accept", "nft add rule inet firewalld "+chain+" reject with icmpx admin-prohibited")
	}
	n.answers(fmt.Sprintf("the node port answers beside firewalld: %v", inputAccepts), netip.AddrPortFrom(s.Node.Addrs[0], frontend(s, sdk.NodePort).Port()), inputAccepts)
}

// ambientProbes translates the source address of the node's own calls to a pod, as Istio's ambient mode does for the
// kubelet's probes. It checks that the dataplane does not undo this translation, and that callers of the Service reach
// the pod.
func (n sharedNode) ambientProbes() {
	n.Helper()
	s, leave := n.place("node-port")
	defer leave()
	n.update(s.Update(1))
	pod := s.Services[0].Cluster[0].Addr // on this node
	probes := netip.MustParseAddr("169.254.7.127")
	rule := fmt.Sprintf("POSTROUTING -d %s -m owner --socket-exists -p tcp -j SNAT --to-source %s", pod.Addr(), probes)
	n.must("ip address add "+probes.String()+"/32 dev lo", n.tool+"-t nat -A "+rule)
	defer n.must(n.tool+"-t nat -D "+rule, "ip address del "+probes.String()+"/32 dev lo")
	host, err := n.Host(pod.Addr())
	if err == nil {
		err = n.Lead(probes, host)
	}
	if err != nil {
		n.Fatal(err)
	}
	eventually.Succeeds(n, "the pod receives probes from "+probes.String(), func() error {
		_, client, err := n.ask(n.Node(), s.Node.Addrs[0], pod)
		if err == nil && client.Addr() != probes {
			err = fmt.Errorf("the pod received the call from %s", client)
		}
		return err
	})
	n.answers("the node port answers while probes are translated", netip.AddrPortFrom(s.Node.Addrs[0], frontend(s, sdk.NodePort).Port()), true)
}
