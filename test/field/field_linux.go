// SPDX-License-Identifier: Apache-2.0

// Package field tests dataplanes by packets in situations that users of service proxies have reported: bugs of other
// proxies, rules of other programs, damaged rules and dropped packets. The kernel tests of each mode call it. It must
// not know how a mode writes its rules. Start reading at Check.
package field

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest"
	"github.com/pointsman/pointsman/sdk/sdktest/netns"
	"github.com/pointsman/pointsman/test/eventually"
)

// Testbed returns the node of a test and the hosts around it.
func Testbed(t testing.TB) *netns.Testbed {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root: it makes network namespaces, and writes to their tables")
	}
	g, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	return g
}

// Check tests a configured dataplane on the node of a testbed by the cases of this file. If prefixes is set, node ports
// answer at all addresses of a prefix in the kernel's local table.
func Check(t *testing.T, g *netns.Testbed, d sdk.Dataplane, prefixes bool) {
	t.Helper()
	n := node{t, g, d}
	n.earlyClient()
	n.localTable(prefixes)
	n.routedBack()
}

// A node is the node of a testbed, with the dataplane that serves it.
type node struct {
	*testing.T
	*netns.Testbed
	dataplane sdk.Dataplane
}

// update applies an update and makes the dataplane Active.
func (d node) update(u sdk.Update) {
	d.Helper()
	if r, err := d.dataplane.Sync(d.Context(), u); err != nil || len(r.Failed) > 0 {
		d.Fatal(err, r.Failed)
	}
	if err := d.dataplane.SetRole(d.Context(), sdk.Active); err != nil {
		d.Fatal(err)
	}
}

// place sets up a scenario on the testbed, with endpoints that answer until leave is called.
func (d node) place(name string) (s sdktest.Scenario, leave func()) {
	d.Helper()
	scenarios := sdktest.Scenarios()
	s, left := d.Place(scenarios[slices.IndexFunc(scenarios, func(s sdktest.Scenario) bool { return s.Name == name })])
	if len(left) > 0 {
		d.Fatal(left)
	}
	var all []io.Closer
	for _, ep := range s.Services[0].Cluster {
		host, err := d.Host(ep.Addr.Addr())
		if err != nil {
			d.Fatal(err)
		}
		l, err := netns.Answer(d.Context(), host, sdk.TCP, ep.Addr)
		if err != nil {
			d.Fatal(err)
		}
		all = append(all, l)
	}
	return s, func() {
		for _, l := range all {
			l.Close()
		}
	}
}

// frontend returns the address of the first Service's first frontend of a kind.
func frontend(s sdktest.Scenario, kind sdk.Kind) netip.AddrPort {
	all := s.Services[0].Frontends
	return all[slices.IndexFunc(all, func(f sdk.Frontend) bool { return f.Kind == kind })].Addr
}

// run runs a command on the node, and returns its output.
func (d node) run(command string) (string, error) {
	var out []byte
	err := d.Node().Do(func() (err error) {
		words := strings.Fields(command)
		out, err = exec.CommandContext(d.Context(), words[0], words[1:]...).CombinedOutput()
		return err
	})
	return string(out), err
}

// must runs commands on the node.
func (d node) must(commands ...string) {
	d.Helper()
	for _, command := range commands {
		if out, err := d.run(command); err != nil {
			d.Fatalf("%s: %v\n%s", command, err, out)
		}
	}
}

// earlyClient connects to an external IP before the dataplane serves it. conntrack then has an entry without
// translation for this connection, but its next packets must reach the Service (kubernetes#101607).
func (d node) earlyClient() {
	d.Helper()
	s, leave := d.place("external-ip")
	defer leave()
	external := frontend(s, sdk.ExternalIP)
	addr := external.Addr().String()
	d.must("ip link add nowhere type veth peer name nobody", "ip link set nowhere up", "ip link set nobody up",
		"ip route replace "+addr+"/32 dev nowhere", "ip neighbour replace "+addr+" lladdr 02:00:00:00:00:01 dev nowhere nud permanent")
	defer d.must("ip link del nowhere")

	services := s.Services
	s.Services = nil
	d.update(s.Update(1))
	answered := make(chan error, 1)
	go func() { answered <- d.connect(d.Node(), s.Node.Addrs[0], external, time.Minute) }()
	eventually.True(d, "conntrack has an entry of the first packet", func() bool {
		out, err := d.run("conntrack -L -d " + addr)
		return err == nil && strings.Contains(out, "[UNREPLIED]")
	})
	s.Services = services
	d.update(s.Update(2))
	if err := <-answered; err != nil {
		d.Errorf("a client that connected before the Service was created: %v", err)
	}
}

// localTable calls a node port at addresses that no interface has, but the kernel's local table: one that is added after
// the Service and, if prefixes is set, one within a prefix (kubernetes#97836).
func (d node) localTable(prefixes bool) {
	d.Helper()
	s, leave := d.place("node-port")
	defer leave()
	s.Node.NodePorts = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}
	d.update(s.Update(1))
	d.must("ip route add local 10.99.0.50/32 dev lo", "ip route add local 10.98.0.0/16 dev lo")
	defer d.must("ip route del local 10.99.0.50/32 dev lo", "ip route del local 10.98.0.0/16 dev lo")
	client := netip.MustParseAddr("198.18.0.7")
	host, err := d.Host(client)
	if err != nil {
		d.Fatal(err)
	}
	addrs := []string{"10.99.0.50"}
	if prefixes {
		addrs = append(addrs, "10.98.7.7")
	}
	for _, addr := range addrs {
		at := netip.AddrPortFrom(netip.MustParseAddr(addr), frontend(s, sdk.NodePort).Port())
		eventually.Succeeds(d, "the node port answers at "+addr, func() error { return d.connect(host, client, at, time.Second) })
	}
}

// routedBack calls an unused port of an external IP through a router, which is also the node's default gateway. The node
// must not send the packet back to the router, which would loop (cilium#14176, felix#2690), and the used port answers. If
// the external IP belongs to a network of the node, a neighbour may have it: then the node forwards the packet.
func (d node) routedBack() {
	d.Helper()
	s, leave := d.place("external-ip")
	defer leave()
	served := frontend(s, sdk.ExternalIP)
	router, err := d.Host(netip.MustParseAddr("198.18.0.7"))
	if err != nil {
		d.Fatal(err)
	}
	client := netip.MustParseAddr("198.18.7.7")
	host, err := d.Pod(router, client)
	if err == nil {
		err = d.Lead(client, router)
	}
	if err != nil {
		d.Fatal(err)
	}
	device, undo := d.setDefaultRoute(client)
	defer undo()
	rule := fmt.Sprintf(" -d %s -p tcp --dport 81", served.Addr())
	table := "iptables -w -t mangle "
	if _, err := d.run(table + "-I PREROUTING" + rule); err == nil {
		d.must(table + "-D PREROUTING" + rule)
	} else { // the nf_tables of user-mode Linux has no such rules
		table = "iptables-legacy -w -t mangle "
	}
	for _, chain := range []string{"PREROUTING", "POSTROUTING"} {
		d.must(table + "-I " + chain + rule)
		defer d.must(table + "-D " + chain + rule)
	}
	d.update(s.Update(1))
	packets := func(chain string) int { // counts the packets of one call that pass chain
		d.must(table + "-Z " + chain)
		_ = d.connect(host, client, netip.AddrPortFrom(served.Addr(), 81), 300*time.Millisecond) // the SYN is sent once
		out, err := d.run(table + "-nvxL " + chain)
		before, _, _ := strings.Cut(out, "dpt:81")
		n, bad := strconv.Atoi(strings.Fields(before[strings.LastIndex(before, "\n")+1:] + " ?")[0])
		if err := errors.Join(err, bad); err != nil {
			d.Fatal(out, err)
		}
		return n
	}
	eventually.Succeeds(d, "the node receives a packet to an unused port once, and the used port answers", func() error {
		if n := packets("PREROUTING"); n != 1 {
			return fmt.Errorf("the node received the packet %d times", n)
		}
		return d.connect(host, client, served, time.Second)
	})
	if way, err := d.run("ip route get " + served.Addr().String()); err != nil || strings.HasPrefix(way, "local") {
		return // the node has the external IP
	}
	neighbours := netip.PrefixFrom(served.Addr(), 28).Masked().String()
	d.must("ip route add "+neighbours+" dev "+device, "ip neighbour replace "+served.Addr().String()+" lladdr 02:00:00:00:00:01 dev "+device+" nud permanent")
	defer d.must("ip route del " + neighbours)
	eventually.True(d, "the node forwards a packet to a neighbour", func() bool { return packets("POSTROUTING") > 0 })
}

// connect opens a TCP connection from a host, and closes it.
func (d node) connect(h *netns.Host, from netip.Addr, to netip.AddrPort, within time.Duration) error {
	ctx, cancel := context.WithTimeout(d.Context(), within)
	defer cancel()
	conn, err := h.Dial(ctx, "tcp", from, to)
	if err == nil {
		conn.Close()
	}
	return err
}
