// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/sdk"
)

// A fuzzInput has unusual values for a Service and a node.
type fuzzInput struct {
	namespace, service, port, iface string
	number                          uint16
	affinity                        int64
	bits                            uint8
	shape                           uint8
}

// fuzzSeeds are the seeds of FuzzRender.
var fuzzSeeds = []fuzzInput{
	{"ns", "web", "http", "cali", 80, 0, 0, 0},
	{`quote"`, `back\slash`, `'single'`, "if0", 1, 10800, 8, 1},
	{"line\nCOMMIT", "*filter\n-F", "\r\n:INPUT DROP", "a b", 65535, 1 << 40, 32, 2},
	{"-j", "ACCEPT", "--comment", "-i", 53, -1, 24, 3},
	{"\x00\xff\xfe", "юникод", strings.Repeat("long", 100), "", 443, 1, 16, 7},
	{"", "$(reboot)", "`x`; #", "veth+", 9, 86400, 31, 15},
}

// services returns the node and the Services with the values of s: frontends of each kind; shape selects endpoints,
// source ranges and the Local policy.
func (s fuzzInput) services() (sdk.Node, []sdk.Service) {
	node := sdk.Node{Addrs: []netip.Addr{v4(192<<24 | 2<<8 | 10)}, NodePorts: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}, MasqueradeBit: s.bits}
	pods := sdk.Pods{InterfacePrefix: s.iface}
	if s.shape&16 != 0 {
		pods = sdk.Pods{Bridge: s.iface}
	}
	if checkPods(pods) == nil { // Sync refuses all others
		node.Pods = pods
	}
	var all []sdk.Service
	port := max(1, s.number)
	for i, protocol := range []sdk.Protocol{sdk.TCP, sdk.UDP, sdk.SCTP} {
		for _, own := range []netip.Addr{v4(base + uint32(i)), v6(uint64(i) + 1)} {
			svc := service(i,
				sdk.Frontend{Kind: sdk.ClusterIP, Policy: sdk.Cluster, Addr: netip.AddrPortFrom(own, port)},
				sdk.Frontend{Kind: sdk.LoadBalancer, Policy: sdk.Local, Addr: netip.AddrPortFrom(own.Next().Next().Next(), port)},
				sdk.Frontend{Kind: sdk.NodePort, Policy: sdk.Local, Addr: netip.AddrPortFrom(iptables.Unspecified(sdk.FamilyOf(own)), port)})
			svc.Name.Namespace, svc.Name.Service, svc.Name.Port, svc.Name.Protocol = s.namespace, s.service, s.port, protocol
			svc.Affinity = time.Duration(s.affinity) * time.Second
			if s.shape&2 != 0 {
				svc.Cluster = nil
			} else if s.shape&4 != 0 {
				svc.Local = svc.Cluster
				svc.Cluster[0].OnNode = true
			}
			if s.shape&8 != 0 {
				svc.Frontends[1].Sources = []netip.Prefix{netip.PrefixFrom(own, int(s.bits)).Masked()}
				svc.HealthPort = port
			}
			all = append(all, svc)
		}
	}
	return node, all
}

// scripts returns, for each family, the rules after s was written to empty fake tables.
func (s fuzzInput) scripts(t testing.TB) map[sdk.Family]fakeRules {
	t.Helper()
	node, services := s.services()
	all := make(map[sdk.Family]fakeRules)
	for _, family := range []sdk.Family{sdk.IPv4, sdk.IPv6} {
		all[family] = tablesOf(t, family, node, services)
	}
	return all
}

// Whatever names and numbers a Service has, each of its rules reads back as one line with the intended meaning, and no
// external value becomes more than one word.
func FuzzRender(f *testing.F) {
	for _, s := range fuzzSeeds {
		f.Add(s.namespace, s.service, s.port, s.iface, s.number, s.affinity, s.bits, s.shape)
	}
	f.Fuzz(func(t *testing.T, namespace, service, port, iface string, number uint16, affinity int64, bits, shape uint8) {
		s := fuzzInput{namespace, service, port, iface, number, affinity, bits, shape}
		for family, b := range s.scripts(t) {
			text := b.fake.Last.String()
			back, err := iptables.Read(strings.NewReader(text))
			if err != nil {
				t.Fatalf("%s: the script cannot be parsed: %v\n%s", family, err, text)
			}
			should := b.ours()
			if len(back) != len(should) {
				t.Errorf("%s: the script has %d chains, want %d:\n%s", family, len(back), len(should), text)
			}
			for id, rules := range should {
				if !slices.Equal(back[id], rules) {
					t.Errorf("%s: %s reads back as\n%q, and was\n%q", family, id, back[id], rules)
				}
				for _, r := range back[id] {
					checkRule(t, r)
				}
			}
		}
	})
}

// checkRule checks that a rule has exactly one target.
func checkRule(t *testing.T, r iptables.Rule) {
	t.Helper()
	fields, err := r.Fields()
	if err != nil {
		t.Fatal(err)
	}
	targets := 0
	for i, f := range fields {
		behind := ""
		if i > 0 {
			behind = fields[i-1]
		}
		if (f == "-j" || f == "-g") && behind != "--comment" && behind != "-i" {
			targets++
		}
	}
	if targets != 1 {
		t.Errorf("%d targets in %q", targets, r)
	}
}
