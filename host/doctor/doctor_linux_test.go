// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/sdk/sdktest/netns"
)

func TestMain(m *testing.M) { netns.Main(m) }

// healthy is a proc file system with which every check is OK.
var healthy = map[string]string{
	"sys/net/ipv4/ip_forward": "1", "sys/net/ipv6/conf/all/forwarding": "1",
	"net/if_inet6":                         "fd000000000000000000000000000001 02 40 00 80     eth0",
	"sys/net/netfilter/nf_conntrack_count": "10",
	"sys/net/netfilter/nf_conntrack_max":   "100",
	"sys/net/ipv4/conf/all/rp_filter":      "0",
	"sys/net/ipv4/conf/eth0/rp_filter":     "2",
	"sys/net/ipv4/conf/lo/rp_filter":       "1",
	"net/tcp": "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n" +
		"   0: 00000000:7591 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 5001 1\n" + // listens on 30097
		"   1: 0100000A:7592 0200000A:0050 01 00000000:00000000 00:00000000 00000000     0        0 5002 1\n", // a connection from 30098
}

// withPort returns a Service with a node port and an endpoint.
func withPort(nodePort, endpoint string) []admin.Service {
	return []admin.Service{{Namespace: "shop", Name: "web", Ports: []admin.Port{{
		Network: "tcp4", Frontends: []string{"node-port *:" + nodePort + " local"}, Cluster: []string{endpoint},
	}}}}
}

// bad returns the findings that are not OK.
func bad(all []Finding) string {
	var lines []string
	for _, f := range all {
		if f.Result != OK {
			lines = append(lines, fmt.Sprintf("%s %s: %s; %s", f.Result, f.Check, f.Why, f.Try))
		}
	}
	return strings.Join(lines, "\n")
}

func TestExamine(t *testing.T) {
	for _, tt := range []struct {
		what    string
		changes map[string]string // of files
		node    Node
		want    string // the start of the only finding that is not OK
	}{
		{what: "all is well"},
		{what: "no connection is tracked", changes: map[string]string{"sys/net/netfilter/nf_conntrack_count": "absent", "sys/net/netfilter/nf_conntrack_max": "absent"}},
		{what: "IPv4 is not forwarded", changes: map[string]string{"sys/net/ipv4/ip_forward": "0"}, node: Node{Mode: "iptables"}, want: "fail forwarding: net.ipv4.ip_forward is 0"},
		{what: "and need not be", changes: map[string]string{"sys/net/ipv4/ip_forward": "0"}, node: Node{Mode: "userspace"}},
		{what: "IPv6 is not forwarded", changes: map[string]string{"sys/net/ipv6/conf/all/forwarding": "0"}, want: "fail forwarding: net.ipv6.conf.all.forwarding is 0"},
		{what: "IPv6 is not used", changes: map[string]string{"sys/net/ipv6/conf/all/forwarding": "0", "net/if_inet6": "fe80 02 40 20 80 eth0"}},
		{what: "nearly full", changes: map[string]string{"sys/net/netfilter/nf_conntrack_count": "80"}, want: "warn connection tracking: 80 of 100 connections"},
		{what: "full", changes: map[string]string{"sys/net/netfilter/nf_conntrack_count": "99"}, want: "fail connection tracking: 99 of 100 connections"},
		{what: "strict", changes: map[string]string{"sys/net/ipv4/conf/eth0/rp_filter": "1"}, want: "warn reverse path filter: strict on eth0: "},
		{what: "strict everywhere", changes: map[string]string{"sys/net/ipv4/conf/all/rp_filter": "1", "sys/net/ipv4/conf/eth0/rp_filter": "0"}, want: "warn reverse path filter: strict on eth0: "},
		{what: "a free node port", node: Node{Services: withPort("30080", "10.0.0.9:80")}},
		{what: "a connection from that port", node: Node{Services: withPort("30098", "10.0.0.9:80")}},
		{what: "a node port that is taken", node: Node{Mode: "ipvs", Services: withPort("30097", "10.0.0.9:80")}, want: "warn node ports: a process listens on tcp 30097, a node port of Service shop/web"},
		{what: "by the Service's own endpoint", node: Node{Mode: "ipvs", Services: withPort("30097", "10.0.0.1:30097")}},
		{what: "by the relay", node: Node{Mode: "userspace", Services: withPort("30097", "10.0.0.9:80")}},
	} {
		tt.node.Proc, tt.node.StateDir = t.TempDir(), t.TempDir()
		files := maps.Clone(healthy)
		maps.Copy(files, tt.changes)
		for path, text := range files {
			path = filepath.Join(tt.node.Proc, path)
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
		if got := bad(tt.node.Examine()); !strings.HasPrefix(got, tt.want) || (tt.want == "") != (got == "") || strings.Contains(got, "\n") {
			t.Errorf("%s: %q, want %q", tt.what, got, tt.want)
		}
	}
}

// TestStateDir: a directory of another user is OK, as that of the packages is for root.
func TestStateDir(t *testing.T) {
	dir := t.TempDir()
	if os.Getuid() == 0 {
		if err := os.Chown(dir, 4711, 4711); err != nil {
			t.Fatal(err)
		}
	}
	for mode, want := range map[os.FileMode]string{0o755: "", 0o777: "fail stateDir: every user may write to " + dir} {
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		if got := bad(Node{StateDir: dir}.stateDir()); !strings.HasPrefix(got, want) || (want == "") != (got == "") {
			t.Errorf("mode %o: %q, want %q", mode, got, want)
		}
	}
	if got := bad(Node{StateDir: dir + "/none"}.stateDir()); got != "" {
		t.Errorf("before the host made it: %q", got)
	}
}

// TestKernelRoutes: without a route to ClusterIPs, processes of the node cannot connect to Services.
func TestKernelRoutes(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: it changes routes, in a network namespace of its own")
	}
	link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "uplink"}, PeerName: "other"}
	if err := netlink.LinkAdd(link); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = netlink.LinkDel(link) }()
	addr, err := netlink.ParseAddr("192.0.2.1/24")
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.AddrAdd(link, addr); err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		t.Fatal(err)
	}
	node := Node{Services: []admin.Service{{Namespace: "default", Name: "kubernetes", Ports: []admin.Port{{Network: "tcp4", Frontends: []string{"cluster-ip 10.96.0.1:443"}}}}}}
	if got := bad(node.routes()); !strings.HasPrefix(got, "fail route to ClusterIPs: ") || !strings.Contains(got, "network is unreachable; add a default route, or a route for the Service range") {
		t.Errorf("without a route: %q", got)
	}
	_, services, _ := net.ParseCIDR("10.96.0.0/12")
	if err := netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: services}); err != nil {
		t.Fatal(err)
	}
	if got := bad(node.routes()); got != "" {
		t.Errorf("with a route: %q", got)
	}
}
