// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/sdk/sdktest/netns"
)

func TestMain(m *testing.M) { netns.Main(m) }

// well is a proc of a node on which all is well.
func well() map[string]string {
	return map[string]string{
		"sys/net/ipv4/ip_forward": "1", "sys/net/ipv6/conf/all/forwarding": "1",
		"net/if_inet6":                         "fd000000000000000000000000000001 02 40 00 80     eth0",
		"sys/net/netfilter/nf_conntrack_count": "10",
		"sys/net/netfilter/nf_conntrack_max":   "100",
		"net/stat/nf_conntrack":                "entries found insert_failed drop early_drop\n0000000a 00 00000031 00000000 00\n0000000a 00 00000000 00000000 00",
		"sys/net/ipv4/conf/all/rp_filter":      "0",
		"sys/net/ipv4/conf/eth0/rp_filter":     "2",
		"sys/net/ipv4/conf/lo/rp_filter":       "1",
		"sys/net/ipv4/ip_local_port_range":     "32768\t60999",
		"sys/net/ipv4/ip_local_reserved_ports": "",
		"net/route":                            "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\neth0\t00000000\t0100000A\t0003\t0\t0\t0\t00000000\t0\t0\t0\neth0\t0000000A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0",
	}
}

// found returns what is found with changes to a node that is well, besides the clock.
func found(t *testing.T, changes map[string]string, interfaces []net.Interface, nodePorts ...uint16) string {
	t.Helper()
	proc := t.TempDir()
	files := well()
	maps.Copy(files, changes)
	for path, text := range files {
		path = filepath.Join(proc, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if text == "absent" {
			continue
		}
		if err := os.WriteFile(path, []byte(text+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	interfaces = append(interfaces, net.Interface{Name: "lo", Flags: net.FlagLoopback}, net.Interface{Name: "eth0", MTU: 1450})
	return bad(Node{Proc: proc, Interfaces: interfaces, Kinds: map[string]string{"cni0": "bridge", "veth1": "veth"}, NodePorts: nodePorts}.Examine())
}

// bad are the findings that are not ok, but for the clock's.
func bad(all []admin.Finding) string {
	all = slices.DeleteFunc(all, func(f admin.Finding) bool { return f.Result == admin.OK || f.Check == "clock" })
	var lines []string
	for _, f := range all {
		lines = append(lines, fmt.Sprintf("%s %s: %s; %s", f.Result, f.Check, f.Why, f.Try))
	}
	return strings.Join(lines, "\n")
}

// TestExamine names what is not as it should be, and nothing else.
func TestExamine(t *testing.T) {
	for _, tt := range []struct {
		what       string
		changes    map[string]string
		interfaces []net.Interface
		nodePorts  []uint16
		want       string // a part of each line
	}{
		{what: "all is well", nodePorts: []uint16{30080}},
		{what: "no connection is tracked", changes: map[string]string{"sys/net/netfilter/nf_conntrack_count": "absent", "sys/net/netfilter/nf_conntrack_max": "absent", "net/stat/nf_conntrack": "absent"}},
		{what: "IPv4", changes: map[string]string{"sys/net/ipv4/ip_forward": "0"}, want: "warn forwarding: IPv4 is not forwarded, so that only a relay reaches endpoints; sysctl -w net.ipv4.ip_forward=1"},
		{what: "IPv6", changes: map[string]string{"sys/net/ipv6/conf/all/forwarding": "0"}, want: "warn forwarding: IPv6 is not forwarded"},
		{what: "IPv6 is not used", changes: map[string]string{"sys/net/ipv6/conf/all/forwarding": "0", "net/if_inet6": "fe80 02 40 20 80 eth0"}},
		{what: "filled", changes: map[string]string{"sys/net/netfilter/nf_conntrack_count": "80"}, want: "warn connection tracking: 80 of 100 connections, 80 % of what"},
		{what: "full", changes: map[string]string{"sys/net/netfilter/nf_conntrack_count": "99"}, want: "fail connection tracking: 99 of 100"},
		{what: "dropped", changes: map[string]string{"net/stat/nf_conntrack": "entries found insert_failed drop early_drop\n0 0 0 00000010 0\n0 0 0 00000001 0"}, want: "warn connection tracking: 17 packets were dropped"},
		{what: "not entered", changes: map[string]string{"net/stat/nf_conntrack": "entries insert_failed drop\n0 40 0\n0 41 0"}, want: "warn connection tracking: 129 connections were not entered"},
		{what: "an MTU that fits", interfaces: []net.Interface{{Name: "veth1", MTU: 1450, Flags: net.FlagUp}}},
		{what: "a larger MTU that is not used", interfaces: []net.Interface{{Name: "veth1", MTU: 9000}}},
		{what: "a larger MTU", interfaces: []net.Interface{{Name: "veth1", MTU: 1500, Flags: net.FlagUp}}, want: "warn MTU: pods send larger packets than the 1450 of eth0, by which this node reaches others: veth1 (1500)"},
		{what: "a bridge", interfaces: []net.Interface{{Name: "cni0"}}, changes: map[string]string{"sys/net/bridge/bridge-nf-call-iptables": "1", "sys/net/bridge/bridge-nf-call-ip6tables": "1"}},
		{what: "a bridge without rules", interfaces: []net.Interface{{Name: "cni0"}}, changes: map[string]string{"sys/net/bridge/bridge-nf-call-iptables": "0", "sys/net/bridge/bridge-nf-call-ip6tables": "1"}, want: "warn bridges: no rule sees what passes cni0: net.bridge.bridge-nf-call-iptables is 0"},
		{what: "a bridge without the module", interfaces: []net.Interface{{Name: "cni0"}}, want: "warn bridges: no rule sees what passes cni0: the module br_netfilter is not loaded, so that a pod does not reach a Service that a pod on the same bridge serves; modprobe br_netfilter"},
		{what: "strict", changes: map[string]string{"sys/net/ipv4/conf/eth0/rp_filter": "1"}, want: "warn reverse path filter: strict on eth0: "},
		{what: "strict by all", changes: map[string]string{"sys/net/ipv4/conf/all/rp_filter": "1", "sys/net/ipv4/conf/eth0/rp_filter": "0"}, want: "warn reverse path filter: strict on eth0: "},
		{what: "a node port in the range", nodePorts: []uint16{30080, 40000}, want: "warn node ports: 40000: connections of this node may use them too (ip_local_port_range is 32768 to 60999); sysctl -w net.ipv4.ip_local_reserved_ports=40000"},
		{what: "beside others", changes: map[string]string{"sys/net/ipv4/ip_local_reserved_ports": "8080,9000-9100"}, nodePorts: []uint16{40000}, want: "ip_local_reserved_ports=8080,9000-9100,40000"},
		{what: "a reserved one", changes: map[string]string{"sys/net/ipv4/ip_local_reserved_ports": "8080,39000-41000"}, nodePorts: []uint16{40000}},
		{what: "Cilium", interfaces: []net.Interface{{Name: "cilium_host"}}, want: "warn other proxies: Cilium (interface cilium_host): "},
		{what: "an unreadable range", changes: map[string]string{"sys/net/ipv4/ip_local_port_range": "many"}, want: `unknown node ports: ip_local_port_range is "many"`},
	} {
		got := found(t, tt.changes, tt.interfaces, tt.nodePorts...)
		if tt.want == "" && got != "" || !strings.Contains(got, tt.want) || strings.Contains(got, "\n") {
			t.Errorf("%s: %q, want %q", tt.what, got, tt.want)
		}
	}
}

// TestKernelExamine breaks things for real, in a network namespace of the test's own.
func TestKernelExamine(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: it writes kernel parameters, in a namespace of its own")
	}
	examined := func(ports ...uint16) string {
		t.Helper()
		return bad(Node{Proc: "/proc", Interfaces: Interfaces(), Kinds: Kinds(), NodePorts: ports}.Examine())
	}
	set := func(key, value string) {
		t.Helper()
		if err := os.WriteFile("/proc/sys/net/"+key, []byte(value), 0); err != nil {
			t.Fatal(err)
		}
	}
	link := func(name string) {
		t.Helper()
		l := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: "peer" + name[:4]}
		if err := cmp.Or(netlink.LinkAdd(l), netlink.LinkSetUp(l)); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = netlink.LinkDel(l) })
	}
	link("uplink")
	for _, name := range []string{"all", "uplink", "peerupli"} {
		set("ipv4/conf/"+name+"/rp_filter", "0")
	}
	set("ipv4/ip_local_port_range", "32768 60999")
	set("ipv4/ip_local_reserved_ports", "\n")
	for _, program := range []string{"iptables-nft", "iptables-legacy"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("needs iptables of both backends: %v", err)
		}
	}
	for _, step := range []struct {
		do   func()
		want string
	}{
		{func() { set("ipv4/ip_forward", "0") }, "IPv4 is not forwarded"},
		{func() { set("ipv4/ip_forward", "1") }, ""},
		{func() { set("ipv4/conf/uplink/rp_filter", "1") }, "strict on uplink"},
		{func() { set("ipv4/conf/uplink/rp_filter", "2") }, ""},
		{func() { set("ipv4/ip_local_port_range", "30000 60999") }, "30080: connections of this node may use them too"},
		{func() { set("ipv4/ip_local_reserved_ports", "30000-32767") }, ""},
		{func() { defaultRoute(t, "uplink") }, ""},
		{func() { up(t, "peerupli") }, ""},
		{func() { mtu(t, "uplink", 1400) }, "than the 1400 of uplink, by which this node reaches others: peerupli (1500)"},
		{func() { mtu(t, "uplink", 1500) }, ""},
		{func() { bridge(t, "cni0") }, "no rule sees what passes cni0: "},
		{func() { remove(t, "cni0") }, ""},
		{func() { rule(t, "iptables-nft") }, ""},
		{func() { rule(t, "iptables-legacy") }, "both have rules of iptables, 1 of legacy and 1 of nft: packets pass both"},
		{func() { flush(t, "iptables-legacy") }, ""},
		{func() { link("kube-dummy-if") }, "kube-router (interface kube-dummy-if)"},
	} {
		step.do()
		if got := examined(30080); (got == "") != (step.want == "") || !strings.Contains(got, step.want) || strings.Contains(got, "\n") {
			t.Errorf("%q, want %q", got, step.want)
		}
	}
}

// named is an interface that there is.
func named(t *testing.T, name string) netlink.Link {
	t.Helper()
	l, err := netlink.LinkByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// defaultRoute has what goes elsewhere go by an interface.
func defaultRoute(t *testing.T, name string) {
	t.Helper()
	_, everywhere, _ := net.ParseCIDR("0.0.0.0/0")
	if err := netlink.RouteAdd(&netlink.Route{LinkIndex: named(t, name).Attrs().Index, Dst: everywhere, Scope: netlink.SCOPE_LINK}); err != nil {
		t.Fatal(err)
	}
}

func up(t *testing.T, name string) {
	t.Helper()
	if err := netlink.LinkSetUp(named(t, name)); err != nil {
		t.Fatal(err)
	}
}

func mtu(t *testing.T, name string, bytes int) {
	t.Helper()
	if err := netlink.LinkSetMTU(named(t, name), bytes); err != nil {
		t.Fatal(err)
	}
}

// bridge makes one, that rules do not see, whatever the machine has loaded.
func bridge(t *testing.T, name string) {
	t.Helper()
	if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name}}); err != nil {
		t.Fatal(err)
	}
	const key = "/proc/sys/net/bridge/bridge-nf-call-iptables" // of each namespace since Linux 5.3
	if err := os.WriteFile(key, []byte("0"), 0); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
}

func remove(t *testing.T, name string) {
	t.Helper()
	if err := netlink.LinkDel(named(t, name)); err != nil {
		t.Fatal(err)
	}
}

// rule adds one that changes nothing, by a program of iptables, for as long as the test runs.
func rule(t *testing.T, program string) {
	t.Helper()
	t.Cleanup(func() { flush(t, program) })
	if out, err := exec.Command(program, "-A", "FORWARD", "-j", "ACCEPT").CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", program, err, out)
	}
}

func flush(t *testing.T, program string) {
	t.Helper()
	if out, err := exec.Command(program, "-F", "FORWARD").CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", program, err, out)
	}
}
