// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/rulestest"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest"
)

// kubeProxyServes is the scenario that kube-proxy in ipvs mode serves with the objects in testdata/kube-proxy.
const kubeProxyServes = `What kube-proxy served before us.
-- services --
ns1/dns:dns udp
  cluster-ip 172.30.0.43:53
  endpoint   10.180.0.1:8080 here
ns1/web:http tcp
  cluster-ip 172.30.0.41:80
  node-port  30080
  endpoint   10.180.0.1:8080 here
  endpoint   10.180.1.1:8080
-- packets --
10.180.0.9 > 172.30.0.41:80     = 10.180.0.1:8080 10.180.1.1:8080
10.180.0.1 > 172.30.0.41:80     = 10.180.0.1:8080(masq) 10.180.1.1:8080
192.0.2.7  > node:30080         = 10.180.0.1:8080 10.180.1.1:8080 masq
10.180.0.9 > 172.30.0.43:53 udp = 10.180.0.1:8080
`

// runKubeProxy creates the objects of kube-proxy in the fake.
func (f *fake) runKubeProxy(t *testing.T) sdktest.Scenario {
	t.Helper()
	read := func(name string) string {
		text, err := os.ReadFile("testdata/kube-proxy/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(text))
	}
	if err := f.restore(strings.Split(read("ipset"), "\n")...); err != nil {
		t.Fatal(err)
	}
	tables, err := iptables.Read(strings.NewReader(read("iptables")))
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(f.tables[sdk.IPv4], tables)
	f.device = true
	f.ours[netip.MustParseAddr("172.30.0.41")], f.ours[netip.MustParseAddr("172.30.0.43")] = true, true
	for _, line := range strings.Split(read("ipvsadm"), "\n") {
		words := strings.Fields(line)
		at := serviceKey{family: sdk.IPv4, protocol: map[string]sdk.Protocol{"-t": sdk.TCP, "-u": sdk.UDP}[words[1]], addr: netip.MustParseAddrPort(words[2])}
		s := step{verb: addService, service: at, scheduling: scheduling{scheduler: words[4]}}
		if words[0] != "-A" {
			s = step{verb: addDest, service: at, dest: netip.MustParseAddrPort(words[4]), weight: 1}
		}
		if err := (kernel{balancer: f}).do(s); err != nil {
			t.Fatal(err)
		}
	}
	s, err := sdktest.Parse("kube-proxy.txtar", []byte(kubeProxyServes))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A dataplane that takes over from kube-proxy removes no virtual server, destination or address in use, not even for a
// moment. At the end no jump leads to kube-proxy's chains.
func TestTakesOverFromKubeProxy(t *testing.T) {
	l := newInstance(t)
	served := l.fake.runKubeProxy(t)
	l.fake.counted()
	l.full(served)
	if l.plugin.session.families[0].role != sdk.Active {
		t.Errorf("while kube-proxy's rules serve, the adopted role is %s", l.plugin.session.families[0].role)
	}
	for _, r := range l.fake.counted() {
		for _, never := range []string{"remove server", "remove real", "real ", "unbind", "remove " + device, "; destroy KUBE-CLUSTER-IP"} {
			if strings.HasPrefix(r, never) {
				t.Errorf("the takeover sent the request %q", r)
			}
		}
	}
	l.role(sdk.Active)
	fresh := start(t, served)
	if more, less := lacking(l.fake.snapshot(), fresh.fake.snapshot()), lacking(fresh.fake.snapshot(), l.fake.snapshot()); more+less != "" {
		t.Errorf("after the takeover the kernel has the extra objects\n%s\nand lacks\n%s", more, less)
	}
	g := &fakeTestbed{fake: l.fake}
	g.Place(served)
	for _, p := range served.Packets {
		for range 4 {
			if a, _, err := g.send(p); err != nil || a.Verdict != sdk.Forward {
				t.Errorf("%s: %s, %v", p.Text, a, err)
			}
		}
	}
}

// The chains and jumps of a kube-proxy that ended in its first sync, before it wrote rules, are removed, too.
func TestTakesOverFromKubeProxyInItsFirstSync(t *testing.T) {
	l := newInstance(t)
	served := l.fake.runKubeProxy(t)
	for id := range l.fake.tables[sdk.IPv4] {
		if strings.HasPrefix(id.Chain, "KUBE-") {
			l.fake.tables[sdk.IPv4][id] = nil
		}
	}
	l.full(served)
	l.role(sdk.Active)
	for id, rules := range l.fake.tables[sdk.IPv4] {
		if strings.HasPrefix(id.Chain, "KUBE-") && !isOurs(id) && !rulestest.IsShared(id) || strings.Contains(iptables.Join(rules), "KUBE-SERVICES") {
			t.Errorf("the takeover left %s with\n%s", id, iptables.Join(rules))
		}
	}
}

// Cleanup removes what kube-proxy left only if asked, including what kube-proxy's own cleanup forgets. A dry run names
// the same objects. Objects of other programs stay.
func TestCleansUpAfterKubeProxy(t *testing.T) {
	l := newInstance(t)
	(&fakeTestbed{fake: l.fake}).Place(l.fake.runKubeProxy(t))
	foreign := serviceKey{family: sdk.IPv4, protocol: sdk.TCP, addr: netip.MustParseAddrPort("203.0.113.9:443")}
	if err := (kernel{balancer: l.fake}).do(step{verb: addService, service: foreign, scheduling: scheduling{scheduler: "wlc"}}); err != nil {
		t.Fatal(err)
	}
	if err := l.fake.restore("create OTHER hash:ip family inet hashsize 1024 maxelem 65536", "add OTHER 203.0.113.9"); err != nil {
		t.Fatal(err)
	}
	before := l.fake.snapshot()
	if gone, err := l.plugin.Cleanup(t.Context(), sdk.Leftovers{}); err != nil || len(gone) > 0 || l.fake.snapshot() != before {
		t.Errorf("Cleanup without KubeProxy removed %q, %v", gone, err)
	}
	named, err := l.plugin.Cleanup(t.Context(), sdk.Leftovers{KubeProxy: true, DryRun: true})
	if err != nil || len(named) == 0 || l.fake.snapshot() != before {
		t.Errorf("a dry run named %q, %v", named, err)
	}
	gone, err := l.plugin.Cleanup(t.Context(), sdk.Leftovers{KubeProxy: true})
	if err != nil || strings.Join(gone, "\n") != strings.Join(named, "\n") {
		t.Errorf("it removed\n%s\n%v\nand the dry run named\n%s", strings.Join(gone, "\n"), err, strings.Join(named, "\n"))
	}
	left := l.fake.snapshot()
	if want := "in OTHER: 203.0.113.9 \"\"\nserver TCP 203.0.113.9:443 wlc 0x0\nset OTHER hash:ip family inet hashsize 1024 maxelem 65536"; !strings.EqualFold(left, want) {
		t.Errorf("Cleanup left\n%s\nwant\n%s", left, want)
	}
	if l.fake.device {
		t.Errorf("%s is still there", device)
	}
}

// While this dataplane serves, no set has a name of kube-proxy's, because kube-proxy would not work then. When
// kube-proxy has come back and taken over objects, Cleanup keeps these and removes only what is ours alone.
func TestCleanupBesideKubeProxyThatCameBack(t *testing.T) {
	before := newInstance(t)
	before.fake.runKubeProxy(t)
	l := newInstance(t)
	served := l.fake.runKubeProxy(t)
	l.full(served)
	l.role(sdk.Active)
	for name := range l.fake.sets {
		if strings.HasPrefix(name, "KUBE-") {
			t.Errorf("while this dataplane serves, the set %s exists", name)
		}
	}
	ours := l.fake.tables[sdk.IPv4]
	l.fake.runKubeProxy(t)
	for id, rules := range ours {
		for _, r := range rules {
			if there := l.fake.tables[sdk.IPv4][id]; !slices.Contains(there, r) {
				l.fake.tables[sdk.IPv4][id] = append(there, r)
			}
		}
	}
	l.restart()
	filled := make(map[string]map[string]string) // kube-proxy's sets are empty at first
	for name, s := range l.fake.sets {
		if strings.HasPrefix(name, "KUBE-") {
			filled[name], s.entries = s.entries, make(map[string]string)
		}
	}
	early := l.fake.snapshot()
	if gone, err := l.plugin.Cleanup(t.Context(), sdk.Leftovers{}); err == nil || !strings.Contains(err.Error(), "try again once it serves") || l.fake.snapshot() != early {
		t.Errorf("before kube-proxy has filled its sets, Cleanup removed %q, %v", gone, err)
	}
	for name, entries := range filled {
		l.fake.sets[name].entries = entries
	}
	for _, dry := range []bool{true, false} {
		gone, err := l.plugin.Cleanup(t.Context(), sdk.Leftovers{DryRun: dry})
		if text := strings.Join(gone, "\n"); err != nil || !strings.Contains(text, "sets PM-") || strings.Contains(text, "server ") || strings.Contains(text, device) {
			t.Errorf("while kube-proxy runs, Cleanup removed\n%s\n%v", text, err)
		}
	}
	if more, less := lacking(l.fake.snapshot(), before.fake.snapshot()), lacking(before.fake.snapshot(), l.fake.snapshot()); more+less != "" {
		t.Errorf("besides kube-proxy's objects the kernel has\n%s\nand of these it lacks\n%s", more, less)
	}
}
