// SPDX-License-Identifier: Apache-2.0

package sdktest

import (
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/sdk"
)

// TestScenariosAreWhole: each scenario parses and has a description and manifests.
func TestScenariosAreWhole(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) < 45 {
		t.Fatalf("found %d scenarios (%v)", len(files), err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		s, err := Parse(file, data)
		if err != nil {
			t.Error(err)
			continue
		}
		if len(s.Manifests) == 0 {
			t.Errorf("%s has no manifests", file)
		}
		for _, p := range s.Packets {
			if !strings.HasSuffix(p.Text, "= "+p.Want.String()) {
				t.Errorf("%s:%d: %q would be written %q", file, p.Line, p.Text, p.Want)
			}
		}
	}
}

// TestScenariosCover: the scenarios have every kind, policy, protocol, family, verdict and feature.
func TestScenariosCover(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range Scenarios() {
		for _, f := range s.Lacks(sdk.Description{}) {
			seen[string(f)] = true
		}
		for _, p := range s.Packets {
			seen[p.From.From.String()+" to "+p.Frontend.Kind.String()+" "+p.Frontend.Policy.String()] = true
			seen[p.Protocol.String()+" "+sdk.FamilyOf(p.To.Addr()).String()] = true
			if !p.Want.Unserved {
				seen[p.Want.Verdict.String()] = true
			}
		}
	}
	want := []string{"forward", "drop", "reject", "tcp ipv4", "tcp ipv6", "udp ipv4", "udp ipv6", "sctp ipv4"}
	for _, f := range sdk.Features {
		want = append(want, string(f))
	}
	for _, from := range []string{"elsewhere", "pod", "node"} {
		for _, kind := range []string{"cluster-ip", "node-port", "external-ip", "load-balancer"} {
			want = append(want, from+" to "+kind+" cluster")
			want = append(want, from+" to "+kind+" local")
		}
	}
	for _, w := range want {
		if !seen[w] {
			t.Errorf("no scenario shows %s", w)
		}
	}
}

// TestWrongOutcomes changes each outcome of a scenario, and Parse must return an error: the files
// and the rule of sdk cannot disagree.
func TestWrongOutcomes(t *testing.T) {
	data, err := os.ReadFile("testdata/node-port-local.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.Split(string(data), "\n") {
		left, right, ok := strings.Cut(line, " = ")
		if !ok {
			continue
		}
		for _, lie := range []string{"drop", "reject", "unserved", right + " masq", "10.180.9.9:8080"} {
			if strings.HasSuffix(right, "masq") && strings.HasSuffix(lie, "masq") {
				continue
			}
			lied := strings.Replace(string(data), line, left+" = "+lie, 1)
			if _, err := Parse("lie.txtar", []byte(lied)); err == nil {
				t.Errorf("line %d: %q passed", i+1, left+" = "+lie)
			}
		}
	}
}

const whole = `It is a scenario.
-- node --
pods unknown
-- services --
ns1/web:http tcp
  cluster-ip 172.30.0.41:80
  endpoint   10.180.0.1:8080 here
-- packets --
10.180.0.9 > 172.30.0.41:80 = 10.180.0.1:8080
`

// TestParseErrors: each error names the file, the line, and what was expected.
func TestParseErrors(t *testing.T) {
	if _, err := Parse("whole.txtar", []byte(whole)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ old, new, want string }{
		{"It is a scenario.\n", "", `x.txtar:1: expected a sentence that says what the scenario shows`},
		{"-- node --", "-- nodes --", `x.txtar:2: expected one each of the sections node, services, packets, manifests`},
		{"pods unknown", "pods eth0", `x.txtar:3: expected a range such as 10.0.0.0/8 where "eth0" stands; found "pods eth0"`},
		{"pods unknown", "mark-bit 32", `x.txtar:3: expected mark-bit and a number from 0 to 31; found "mark-bit 32"`},
		{"pods unknown", "zone a", `x.txtar:3: expected addresses, node-ports, service-cidrs, pods, masquerade-all or mark-bit; found "zone a"`},
		{"ns1/web:http tcp", "web tcp", `x.txtar:5: expected namespace/service:port where "web" stands; found "web tcp"`},
		{"ns1/web:http tcp", "ns1/web:http icmp", `x.txtar:5: expected tcp, udp or sctp where "icmp" stands; found "ns1/web:http icmp"`},
		{":80\n", "\n", `x.txtar:6: expected address:port where "172.30.0.41" stands; found "cluster-ip 172.30.0.41"`},
		{":80\n", ":80 near\n", `x.txtar:6: expected nothing, local, or from and ranges behind the address; found "cluster-ip 172.30.0.41:80 near"`},
		{"8080 here", "8080 there", `x.txtar:7: expected here, cluster-only or local-only behind the address; found "endpoint 10.180.0.1:8080 there"`},
		{"  endpoint ", "  backend ", `x.txtar:7: expected cluster-ip, node-port, external-ip, load-balancer, endpoint, serving, affinity or health-port; found "backend   10.180.0.1:8080 here"`},
		{"10.180.0.9 >", "10.180.0.9", `x.txtar:9: expected caller > address:port [udp|sctp] = endpoints [masq], reject, drop or unserved; found "10.180.0.9 172.30.0.41:80 = 10.180.0.1:8080"`},
		{"10.180.0.9 >", "fd00::1 >", `x.txtar:9: expected two addresses of one family; found "fd00::1 > 172.30.0.41:80 = 10.180.0.1:8080"`},
		{"= 10.180.0.1:8080", "= lost", `x.txtar:9: expected address:port where "lost" stands; found "10.180.0.9 > 172.30.0.41:80 = lost"`},
		{"= 10.180.0.1:8080", "= drop", `x.txtar:9: expected what the rule gives, which is "10.180.0.1:8080"; found "10.180.0.9 > 172.30.0.41:80 = drop"`},
	} {
		text := strings.Replace(whole, c.old, c.new, 1)
		_, err := Parse("x.txtar", []byte(text))
		if err == nil || !strings.Contains(collapse(err.Error()), collapse(c.want)) {
			t.Errorf("%q instead of %q\n got %v\nwant %s", c.new, c.old, err, c.want)
		}
	}
}

var spaces = regexp.MustCompile(` +`)

func collapse(s string) string { return spaces.ReplaceAllString(s, " ") }

func FuzzParse(f *testing.F) {
	f.Add([]byte(whole))
	for _, name := range []string{"dual-stack", "source-ranges-node", "pods-by-bridge", "udp-serving"} {
		data, err := os.ReadFile("testdata/" + name + ".txtar")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := Parse("fuzz.txtar", data)
		if err != nil {
			return
		}
		for _, svc := range s.Services {
			if err := svc.Check(); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestLoopbackPlaces: different addresses stay different, and ranges stay ranges.
func TestLoopbackPlaces(t *testing.T) {
	for _, s := range Scenarios() {
		placed, leftOut := Loopback().Place(s)
		if len(placed.Packets)+len(leftOut) != len(s.Packets) {
			t.Errorf("%s: %d packets became %d and %d reasons", s.Name, len(s.Packets), len(placed.Packets), len(leftOut))
		}
		frontends := map[string]bool{}
		for _, svc := range placed.Services {
			if err := svc.Check(); err != nil {
				t.Errorf("%s: %v", s.Name, err)
			}
			for _, f := range svc.Frontends {
				key := svc.Name.Network() + f.Addr.String()
				if frontends[key] || !f.Addr.Addr().IsLoopback() && !f.Addr.Addr().IsUnspecified() {
					t.Errorf("%s: frontend %s", s.Name, key)
				}
				frontends[key] = true
			}
		}
		for _, p := range placed.Packets {
			if !p.From.Addr.IsLoopback() || !p.To.Addr().IsLoopback() || p.To.Port() < 10000 {
				t.Errorf("%s: %q became %s to %s", s.Name, p.Text, p.From.Addr, p.To)
			}
		}
	}
	if _, leftOut := Loopback().Place(mustRead(t, "node-port-local")); len(leftOut) > 0 {
		t.Errorf("left out %v", leftOut)
	}
	if got := (placing{}).addr(netip.MustParseAddr("192.0.2.7")); got != netip.MustParseAddr("127.192.2.7") {
		t.Errorf("192.0.2.7 becomes %s", got)
	}
}

func mustRead(t *testing.T, name string) Scenario {
	t.Helper()
	s, err := read(name + ".txtar")
	if err != nil {
		t.Fatal(err)
	}
	return s
}
