// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest/netns"
)

// Where the tests of this file take place, besides the node at nodeAddr.
const (
	nodeAddr = "192.0.2.10"
	podHere  = "10.180.0.1"
	outsider = "198.18.0.7"
)

// A node is a relay with rules on a kernel, and hosts around it.
type node struct {
	*stage
	kernel kernel
	world  *netns.Testbed
}

// onNode runs f on each backend, with an endpoint of TCP and UDP at podHere:8080.
func onNode(t *testing.T, f func(node)) {
	g := world(t)
	onKernel(t, func(k kernel) {
		if err := g.Own(netip.MustParseAddr(nodeAddr)); err != nil {
			k.Fatal(err)
		}
		n := node{world: g, kernel: k, stage: &stage{T: k.T, plugin: newPlugin(k.dir)}}
		k.T.Cleanup(func() { n.stage.Close() })
		h := n.host(podHere)
		for _, protocol := range []sdk.Protocol{sdk.TCP, sdk.UDP} {
			end, err := netns.Answer(k.Context(), h, protocol, netip.MustParseAddrPort(podHere+":8080"))
			if err != nil {
				k.Fatal(err)
			}
			k.T.Cleanup(func() { end.Close() })
		}
		n.begin()
		f(n)
	})
}

func (n node) host(addr string) *netns.Host {
	n.Helper()
	h, err := n.world.Host(netip.MustParseAddr(addr))
	if err != nil {
		n.Fatal(err)
	}
	return h
}

// begin begins a session.
func (n node) begin() {
	n.Helper()
	n.stage.rev = 0
	if _, err := n.Configure(n.Context(), sdk.Setup{Options: n.kernel.options()}); err != nil {
		n.Fatal(err)
	}
}

func (n node) facts() *sdk.Node {
	return &sdk.Node{
		Name: "n1", Addrs: addrs(nodeAddr), MasqueradeBit: 14,
		NodePorts: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")},
	}
}

// serve begins with services, and makes the relay active.
func (n node) serve(services ...sdk.Service) {
	n.Helper()
	n.must(sdk.Update{Full: true, Node: n.facts(), Set: services})
	n.role(sdk.Active)
}

// calls is what an outsider hears from to; a timeout is short.
func (n node) calls(network, to string) (string, error) {
	n.Helper()
	conn, err := n.host(outsider).Dial(n.Context(), network, netip.MustParseAddr(outsider), netip.MustParseAddrPort(to))
	if err != nil {
		return "", err
	}
	defer conn.Close()
	return hears(conn)
}

// hears asks whoever is at the other end; nobody is, if there is no answer soon.
func hears(conn net.Conn) (string, error) { return hearsWithin(5*time.Second, conn) }

func hearsWithin(wait time.Duration, conn net.Conn) (string, error) {
	_ = conn.SetDeadline(time.Now().Add(wait))
	if _, err := fmt.Fprintln(conn, "who"); err != nil {
		return "", err
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	who, _, _ := strings.Cut(line, " ")
	return who, err
}

func (n node) finds(network, to, endpoint string) {
	n.Helper()
	eventually(n.T, func() error {
		if got, err := n.calls(network, to); err != nil || got != endpoint {
			return fmt.Errorf("%s %s: found %q, %v", network, to, got, err)
		}
		return nil
	})
}

// TestKernelRestart: a new process finds itself active, serves as soon as it is
// told what, and whoever kept sending datagrams to the old one finds it too.
func TestKernelRestart(t *testing.T) {
	onNode(t, func(n node) {
		dns := udp(svc("dns", "cluster-ip 172.30.0.10:53", podHere+":8080"))
		web := svc("web", "cluster-ip 172.30.0.41:80", podHere+":8080")
		n.serve(dns, web)
		flow, err := n.host(outsider).Dial(n.Context(), "udp", netip.MustParseAddr(outsider), netip.MustParseAddrPort("172.30.0.10:53"))
		if err != nil {
			n.Fatal(err)
		}
		defer flow.Close()
		if got, err := hears(flow); err != nil || got != podHere+":8080" {
			n.Fatalf("at first: %q, %v", got, err)
		}
		n.stage.Close() // the rules stay, as when a process is killed
		n.stage.plugin = newPlugin(n.kernel.dir)
		n.begin()
		n.must(sdk.Update{Full: true, Node: n.facts(), Set: []sdk.Service{dns, web}})
		n.finds("tcp", "172.30.0.41:80", podHere+":8080")
		eventually(n.T, func() error {
			got, err := hears(flow)
			if err == nil && got != podHere+":8080" {
				err = fmt.Errorf("found %q", got)
			}
			return err
		})
	})
}

// One that was told nothing yet writes nothing, whatever its role: a standby has all its
// rules written at once, and whoever calls while a process comes after another finds what
// the one before wrote.
func TestKernelToldNothing(t *testing.T) {
	onKernel(t, func(k kernel) {
		tables := func() (all string) {
			for _, table := range []string{"nat", "filter"} {
				all += k.run("iptables-"+string(k.backend), "-t", table, "-S")
			}
			return all
		}
		begin := func(role sdk.Role) *plugin {
			d := newPlugin(k.dir)
			k.Cleanup(func() { _ = d.Close() })
			if _, err := d.Configure(k.Context(), sdk.Setup{Options: k.options()}); err != nil {
				k.Fatal(err)
			}
			if err := d.SetRole(k.Context(), role); err != nil {
				k.Fatal(err)
			}
			time.Sleep(2 * time.Second) // the monitor has looked
			return d
		}
		before := tables()
		first := begin(sdk.Standby)
		if after := tables(); after != before {
			k.Errorf("told nothing, it wrote\n%s", after)
		}
		web := svc("web", "cluster-ip 172.30.0.41:80", "10.128.1.5:8080")
		told := sdk.Update{Full: true, Node: &sdk.Node{Name: "n1", MasqueradeBit: 14}, Set: []sdk.Service{web}}
		if _, err := first.Sync(k.Context(), told); err != nil || tables() == before {
			k.Fatalf("told a Service, there is\n%s%v", tables(), err)
		}
		if err := first.SetRole(k.Context(), sdk.Active); err != nil {
			k.Fatal(err)
		}
		before = tables()
		_ = first.Close()
		next := begin(sdk.Active)
		if after := tables(); after != before {
			k.Errorf("the one after it was told nothing, and made of\n%s\n%s", before, after)
		}
		if _, err := next.Sync(k.Context(), told); err != nil || !strings.Contains(tables(), "172.30.0.41") {
			k.Errorf("told the same, there is\n%s%v", tables(), err)
		}
	})
}

// TestKernelNodePortsFollow the addresses that the node has now.
func TestKernelNodePortsFollow(t *testing.T) {
	onNode(t, func(n node) {
		n.serve(svc("web", "node-port 0.0.0.0:30080", podHere+":8080"))
		n.finds("tcp", nodeAddr+":30080", podHere+":8080")
		n.kernel.run("ip", "address", "add", "192.0.2.77/32", "dev", "lo")
		n.finds("tcp", "192.0.2.77:30080", podHere+":8080")
		n.kernel.run("ip", "address", "del", "192.0.2.77/32", "dev", "lo")
		eventually(n.T, func() error {
			if got, err := n.calls("tcp", "192.0.2.77:30080"); err == nil {
				return fmt.Errorf("the address is gone, and %s still answers", got)
			}
			return nil
		})
		n.finds("tcp", nodeAddr+":30080", podHere+":8080")
	})
}

// TestKernelLinkAddresses: node ports are taken at the addresses too that each link has
// for itself, and where a node has no others, its callers still find their Services.
func TestKernelLinkAddresses(t *testing.T) {
	onNode(t, func(n node) {
		const pod6 = "[fd00:10:180::1]:8080"
		end, err := netns.Answer(n.Context(), n.host("fd00:10:180::1"), sdk.TCP, netip.MustParseAddrPort(pod6))
		if err != nil {
			n.Fatal(err)
		}
		defer end.Close()
		for _, a := range []string{"169.254.7.7/32", "fe80::7:7/128"} {
			n.kernel.run("ip", "address", "replace", a, "dev", "lo")
			defer n.kernel.run("ip", "address", "del", a, "dev", "lo")
		}
		facts := n.facts()
		facts.NodePorts = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
		six := svc("web", "node-port [::]:30080", pod6)
		n.must(sdk.Update{Full: true, Node: facts, Set: []sdk.Service{svc("web", "node-port 0.0.0.0:30080, cluster-ip 172.30.0.41:80", podHere+":8080"), six}})
		n.role(sdk.Active)
		n.finds("tcp", "169.254.7.7:30080", podHere+":8080")
		if got, err := ask("[fe80::7:7%lo]:30080"); !strings.HasPrefix(got, pod6) {
			n.Errorf("the node calls its address of a link: %q, %v", got, err)
		}
		for _, a := range []string{"169.254.9.9", "10.9.9.9"} { // who has another goes by that
			m := newMachine(*facts, []address{{prefix: netip.MustParsePrefix("169.254.7.7/32")}, {prefix: netip.MustParsePrefix(a + "/32")}})
			if to := m.reachable(sdk.IPv4); a == "10.9.9.9" && to.String() != a || to.IsLoopback() {
				n.Errorf("with %s packets go to %s", a, to)
			}
		}
	})
}

// TestKernelOnlyByRules: nobody reaches a socket of ours but by calling a Service.
func TestKernelOnlyByRules(t *testing.T) {
	onNode(t, func(n node) {
		dns := udp(svc("dns", "cluster-ip 172.30.0.10:53", podHere+":8080"))
		n.serve(dns, svc("web", "cluster-ip 172.30.0.41:80", podHere+":8080"))
		n.finds("tcp", "172.30.0.41:80", podHere+":8080")
		n.finds("udp", "172.30.0.10:53", podHere+":8080")
		for _, role := range []sdk.Role{sdk.Active, sdk.Standby, sdk.Draining} {
			n.role(role)
			for _, port := range n.way.portals.Ports(sdk.IPv4) {
				if got, err := n.calls("tcp", fmt.Sprintf("%s:%d", nodeAddr, port)); !errors.Is(err, syscall.ECONNREFUSED) {
					n.Errorf("%s: door %d: %q, %v", role, port, got, err)
				}
			}
			port := n.socket(place{sdk.UDP, netip.MustParseAddrPort("172.30.0.10:53")}).Port()
			if got, err := n.calls("udp", fmt.Sprintf("%s:%d", nodeAddr, port)); !errors.Is(err, syscall.ECONNREFUSED) {
				n.Errorf("%s: udp socket %d: %q, %v", role, port, got, err)
			}
		}
	})
}

// TestKernelCallersWait: who calls while the relay is away is not refused, and is
// answered by the one that comes next.
func TestKernelCallersWait(t *testing.T) {
	onNode(t, func(n node) {
		web := svc("web", "cluster-ip 172.30.0.41:80", podHere+":8080")
		n.serve(web)
		n.finds("tcp", "172.30.0.41:80", podHere+":8080")
		if !n.way.withRules()[0].rules.node.patient {
			t.Skip("needs xt_socket: this kernel cannot tell whether a socket is there")
		}
		before := n.way.portals.Ports(sdk.IPv4)
		if err := n.Close(); err != nil {
			n.Fatal(err)
		}
		called := make(chan error, 1)
		go func() { // ends when it is answered, or with patience
			conn, err := n.host(outsider).Dial(n.Context(), "tcp", netip.MustParseAddr(outsider), netip.MustParseAddrPort("172.30.0.41:80"))
			if err == nil {
				defer conn.Close()
				_, err = hears(conn)
			}
			called <- err
		}()
		dropped := regexp.MustCompile(`(?m)^\s*[1-9]\d*\s+\d+\s+DROP\s`)
		eventually(n.T, func() error {
			counts := n.kernel.run("iptables-"+string(n.kernel.backend), "-t", "filter", "-nvxL", ownSocket.Chain)
			if !dropped.MatchString(counts) {
				return fmt.Errorf("nobody called:\n%s", counts)
			}
			return nil
		})
		n.stage.plugin = newPlugin(n.kernel.dir)
		n.begin()
		n.must(sdk.Update{Full: true, Node: n.facts(), Set: []sdk.Service{web}})
		if after := n.way.portals.Ports(sdk.IPv4); after != before {
			n.Errorf("the doors are at %v, and were at %v", after, before)
		}
		if err := <-called; err != nil {
			n.Errorf("who called meanwhile was not answered: %v", err)
		}
	})
}

// TestKernelRounds: how long it took to look for stale UDP flows is told by family, and
// only a change of a UDP Service asks for it.
func TestKernelRounds(t *testing.T) {
	onNode(t, func(n node) {
		rounds := func() (count uint64) {
			for _, h := range n.Report().Histograms {
				if h.Name == "kubeproxy_conntrack_reconciler_sync_duration_seconds" && h.Labels["ip_family"] == "IPv4" {
					for _, c := range h.Counts {
						count += c
					}
				}
			}
			return count
		}
		n.serve(udp(svc("dns", "cluster-ip 172.30.0.10:53", "")), svc("web", "cluster-ip 172.30.0.41:80", ""))
		for _, test := range []struct {
			svc  sdk.Service
			want bool
		}{
			{udp(svc("dns", "cluster-ip 172.30.0.10:53", podHere+":8080")), true},
			{svc("web", "cluster-ip 172.30.0.41:80", podHere+":8080"), false},
		} {
			before := rounds()
			n.must(sdk.Update{Set: []sdk.Service{test.svc}})
			if after := rounds(); (after > before) != test.want {
				n.Errorf("after a change of %v there are %d rounds, and %d before", test.svc.Name, after, before)
			}
		}
	})
}

// TestKernelStrictInput: a node whose policy is to let nobody in still serves.
func TestKernelStrictInput(t *testing.T) {
	onNode(t, func(n node) {
		program := "iptables-" + string(n.kernel.backend)
		n.kernel.run(program, "-P", "INPUT", "DROP")
		defer n.kernel.run(program, "-P", "INPUT", "ACCEPT")
		n.kernel.run(program, "-A", "INPUT", "-m", "conntrack", "--ctstate", "ESTABLISHED", "-j", "ACCEPT")
		web := svc("web", "cluster-ip 172.30.0.41:80", podHere+":8080")
		web.HealthPort = 31080
		n.serve(web, udp(svc("dns", "cluster-ip 172.30.0.10:53", podHere+":8080")))
		n.finds("tcp", "172.30.0.41:80", podHere+":8080")
		n.finds("udp", "172.30.0.10:53", podHere+":8080")
		if _, err := n.calls("tcp", nodeAddr+":31080"); !errors.Is(err, syscall.ECONNREFUSED) {
			n.Errorf("the health port, where nobody listens: %v", err)
		}
	})
}

// TestKernelLimits are set while they are asked for, and given back.
func TestKernelLimits(t *testing.T) {
	const path = "/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_close_wait"
	value := func() string {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Skip("needs conntrack: ", err)
		}
		return strings.TrimSpace(string(data))
	}
	onNode(t, func(n node) {
		before := value()
		facts := n.facts()
		facts.Conntrack.TCPCloseWaitTimeout = 77 * time.Second
		n.must(sdk.Update{Full: true, Node: facts})
		if got := value(); got != before {
			n.Errorf("in standby the limit is %s", got)
		}
		n.role(sdk.Active)
		if got := value(); got != "77" {
			n.Errorf("the limit is %s", got)
		}
		names, err := n.Cleanup(n.Context(), sdk.Leftovers{})
		if got := value(); err != nil || got != before || !slices.ContainsFunc(names, func(s string) bool { return strings.Contains(s, path) }) {
			n.Errorf("after cleaning up %q (%v) the limit is %s", names, err, got)
		}
	})
}

// TestKernelLeftovers: what kube-proxy's userspace mode left is removed when that
// is asked for, and named before; everything else stays.
func TestKernelLeftovers(t *testing.T) {
	onNode(t, func(n node) {
		program := "iptables-" + string(n.kernel.backend)
		for _, words := range []string{
			"-t nat -N KUBE-PORTALS-CONTAINER", "-t nat -N KUBE-PORTALS-HOST", "-t nat -N KUBE-NODEPORT-CONTAINER",
			"-t nat -N KUBE-NODEPORT-HOST", "-t filter -N KUBE-NODEPORT-NON-LOCAL",
			"-t nat -A KUBE-PORTALS-CONTAINER -d 10.96.0.1/32 -p tcp --dport 443 -j REDIRECT --to-ports 40123",
			"-t nat -A PREROUTING -d 203.0.113.1/32 -j RETURN",
		} {
			n.kernel.run(program, strings.Fields(words)...)
		}
		n.kernel.run("sh", "-c", strings.ReplaceAll(`set -e
			PROGRAM -t nat -A PREROUTING -m comment --comment "handle ClusterIPs; NOTE: this must be before the NodePort rules" -j KUBE-PORTALS-CONTAINER
			PROGRAM -t nat -A OUTPUT -m comment --comment "handle ClusterIPs; NOTE: this must be before the NodePort rules" -j KUBE-PORTALS-HOST
			PROGRAM -t nat -A PREROUTING -m addrtype --dst-type LOCAL -m comment --comment "handle service NodePorts; NOTE: this must be the last rule in the chain" -j KUBE-NODEPORT-CONTAINER
			PROGRAM -t nat -A OUTPUT -m addrtype --dst-type LOCAL -m comment --comment "handle service NodePorts; NOTE: this must be the last rule in the chain" -j KUBE-NODEPORT-HOST
			PROGRAM -t filter -A INPUT -m comment --comment "Ensure that non-local NodePort traffic can flow" -j KUBE-NODEPORT-NON-LOCAL`, "PROGRAM", program+" -w"))
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
			n.Errorf("unasked it removed %q", names)
		}
		named := clean(sdk.Leftovers{KubeProxy: true, DryRun: true})
		if len(named) != 11 || n.kernel.saved() != before {
			n.Errorf("a dry run names %d: %q", len(named), named)
		}
		if names := clean(sdk.Leftovers{KubeProxy: true}); !slices.Equal(names, named) {
			n.Errorf("it removed %q", names)
		}
		if got := n.kernel.saved(); strings.TrimSpace(got) != "-A PREROUTING -d 203.0.113.1/32 -j RETURN" {
			n.Errorf("left: %q", got)
		}
		if names := clean(sdk.Leftovers{KubeProxy: true}); len(names) > 0 {
			n.Errorf("what was there after all: %q", names)
		}
	})
}

// TestKernelCleanedByAnother: what another process cleaned up stays clean, though
// the relay still watches and its connections live on. It serves again when it is
// told to.
func TestKernelCleanedByAnother(t *testing.T) {
	onNode(t, func(n node) {
		n.serve(svc("web", "cluster-ip 172.30.0.41:80", podHere+":8080"))
		conn, err := n.host(outsider).Dial(n.Context(), "tcp", netip.MustParseAddr(outsider), netip.MustParseAddrPort("172.30.0.41:80"))
		if err != nil {
			n.Fatal(err)
		}
		defer conn.Close()
		other := newPlugin(n.kernel.dir)
		defer other.Close()
		if _, err := other.Cleanup(n.Context(), sdk.Leftovers{}); err != nil {
			n.Fatal(err)
		}
		eventually(n.T, func() error {
			if lock := n.Report().Lock; lock != sdk.LockReleased {
				return fmt.Errorf("the lock is %v", lock)
			}
			return nil
		})
		if got := n.kernel.saved(); got != "" {
			n.Errorf("it put back\n%s", got)
		}
		if got, err := hears(conn); err != nil || got != podHere+":8080" {
			n.Errorf("the connection from before: %q, %v", got, err)
		}
		n.role(sdk.Active)
		n.finds("tcp", "172.30.0.41:80", podHere+":8080")
	})
}

// saved are all rules.
func (k kernel) saved() string {
	k.Helper()
	var all strings.Builder
	for _, table := range []string{"nat", "filter"} {
		for line := range strings.Lines(k.run("iptables-"+string(k.backend)+"-save", "-t", table)) {
			if line[0] == '-' {
				all.WriteString(line)
			}
		}
	}
	return all.String()
}

// TestKernelEstablished connections outlive their frontend, every role, and rules
// that somebody took away.
func TestKernelEstablished(t *testing.T) {
	onNode(t, func(n node) {
		web := svc("web", "cluster-ip 172.30.0.41:80", podHere+":8080")
		n.serve(web)
		conn, err := n.host(outsider).Dial(n.Context(), "tcp", netip.MustParseAddr(outsider), netip.MustParseAddrPort("172.30.0.41:80"))
		if err != nil {
			n.Fatal(err)
		}
		defer conn.Close()
		in := bufio.NewReader(conn)
		_ = conn.SetDeadline(time.Now().Add(patience))
		lives := func(when string) {
			n.Helper()
			if _, err := in.ReadString('\n'); err != nil { // the endpoint speaks first
				n.Fatalf("%s: %v", when, err)
			}
			_, _ = io.WriteString(conn, "who\n")
		}
		lives("at first")
		n.must(sdk.Update{Delete: []sdk.Name{web.Name}})
		lives("without its Service")
		for _, role := range []sdk.Role{sdk.Draining, sdk.Standby, sdk.Yielded, sdk.Active} {
			n.role(role)
			lives(role.String())
		}
		n.kernel.flush()
		lives("without rules")
	})
}

// TestKernelDescription: with rules there are fewer limits than without.
func TestKernelDescription(t *testing.T) {
	onKernel(t, func(k kernel) {
		for options, want := range map[string]int{string(k.options()): 2, `{"redirect": "never"}`: 4, ``: 2} {
			d := newPlugin(k.dir)
			defer d.Close()
			got, err := d.Configure(k.Context(), sdk.Setup{Options: []byte(options)})
			if err != nil || len(got.Limits) != want {
				k.Errorf("%s: limits %v, %v", options, got.Limits, err)
			}
		}
	})
}

// TestKernelPodsByDevice: over UDP too, a pod is told by where its datagrams come in.
func TestKernelPodsByDevice(t *testing.T) {
	onNode(t, func(n node) {
		dns := udp(svc("dns", "node-port 0.0.0.0:30053 local", podHere+":8080"))
		for device, found := range map[string]bool{"cbr0": true, "eth9": false} {
			from := netip.MustParseAddr("10.180.0.77")
			h, err := n.world.Behind(device, from)
			if err != nil {
				n.Fatal(err)
			}
			facts := n.facts()
			facts.Pods = sdk.Pods{Bridge: "cbr0"}
			n.must(sdk.Update{Full: true, Node: facts, Set: []sdk.Service{dns}}) // nobody serves here: only pods are let in
			n.role(sdk.Active)
			conn, err := h.Dial(n.Context(), "udp", from, netip.MustParseAddrPort(nodeAddr+":30053"))
			if err != nil {
				n.Fatal(err)
			}
			defer conn.Close()
			wait := patience
			if !found {
				wait = time.Second
			}
			if got, err := hearsWithin(wait, conn); found != (err == nil && got == podHere+":8080") {
				n.Errorf("by %s: %q, %v", device, got, err)
			}
		}
	})
}

// TestKernelFailedWrite: rules that could not be written are at the next update,
// and so is what hung on them.
func TestKernelFailedWrite(t *testing.T) {
	onNode(t, func(n node) {
		web := svc("web", "cluster-ip 172.30.0.41:80", podHere+":8080")
		n.serve(web)
		tool := &n.way.withRules()[0].rules.Tool
		prefix := tool.Prefix
		n.do(func() error { tool.Prefix = "/nowhere/iptables"; return nil })
		moved := svc("web", "cluster-ip 172.30.0.42:80", podHere+":8080")
		moved.Normalize()
		u := sdk.Update{From: n.rev, To: n.rev + 1, Set: []sdk.Service{moved}}
		if _, err := n.Sync(n.Context(), u); err == nil {
			n.Fatal("nothing was written, and no error")
		}
		n.finds("tcp", "172.30.0.41:80", podHere+":8080")
		n.do(func() error { tool.Prefix = prefix; return nil })
		n.must(sdk.Update{Set: []sdk.Service{moved}})
		n.finds("tcp", "172.30.0.42:80", podHere+":8080")
		if got, err := n.calls("tcp", "172.30.0.41:80"); err == nil {
			n.Errorf("%s still answers at the old address", got)
		}
		n.do(func() error {
			if open := n.way.withRules()[0].open; len(open) != 1 {
				n.Errorf("sockets at %v", open)
			}
			return nil
		})
	})
}

// Where others have many chains only a few are read before ours are taken out. A foreign
// rule in one of the rest is found all the same, and the chain that it leads to is emptied.
func TestKernelCleansUpAmongMany(t *testing.T) {
	onNode(t, func(n node) {
		n.serve()
		program := "iptables-" + string(n.kernel.backend)
		for i := range 51 {
			n.kernel.run(program, "-t", "nat", "-N", fmt.Sprintf("THEIRS-%d", i))
		}
		n.kernel.run(program, "-t", "nat", "-A", "THEIRS-50", "-j", container.Chain)
		if _, err := n.plugin.Cleanup(n.Context(), sdk.Leftovers{}); err != nil {
			n.Fatal(err)
		}
		var left []string
		for line := range strings.Lines(n.kernel.run(program, "-t", "nat", "-S")) {
			if strings.Contains(line, "KUBE-") {
				left = append(left, strings.TrimSpace(line))
			}
		}
		if want := []string{"-N " + container.Chain, "-A THEIRS-50 -j " + container.Chain}; !slices.Equal(left, want) {
			n.Errorf("cleaned up, there is %q", left)
		}
	})
}
