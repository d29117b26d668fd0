// SPDX-License-Identifier: Apache-2.0

package duty_test

import (
	"errors"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/duty"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/ledger"
)

// open is the ledger in dir.
func open(t *testing.T, dir string) *ledger.Ledger {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("there is a ledger on Linux only")
	}
	shared, err := ledger.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return shared
}

func TestGivesBackWhatWasTaken(t *testing.T) {
	dir, path := t.TempDir(), parameter(t)
	if err := open(t, dir).Take("some", path, "1"); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		l     sdk.Leftovers
		after string
	}{{sdk.Leftovers{DryRun: true}, "1"}, {sdk.Leftovers{}, "0"}} {
		named, err := duty.GiveBack(dir, "some", c.l)
		if err != nil || len(named) != 1 || !strings.Contains(named[0], path) {
			t.Errorf("%+v: %q, %v", c.l, named, err)
		}
		if now, err := os.ReadFile(path); err != nil || strings.TrimSpace(string(now)) != c.after {
			t.Errorf("%+v: it is %q, %v", c.l, now, err)
		}
	}
}

func TestAReportIsACopy(t *testing.T) {
	var s duty.Status
	before := s.Report().Progress
	s.Step()
	s.Waiting("a lock")
	s.Tell(func(r *sdk.Report) { r.Samples = []sdk.Sample{{Name: "a"}} })
	seen := s.Report()
	if seen.Progress <= before || seen.Waiting != "a lock" {
		t.Errorf("it says %+v", seen)
	}
	seen.Samples[0].Name = "b"
	if again := s.Report(); again.Samples[0].Name != "a" {
		t.Error("who reads a report changes it")
	}
}

func name(service string, p sdk.Protocol) sdk.Name {
	return sdk.Name{Namespace: "ns1", Service: service, Protocol: p, Family: sdk.IPv4}
}

func TestTouched(t *testing.T) {
	a, b, old := name("a", sdk.TCP), name("b", sdk.TCP), name("old", sdk.TCP)
	var state sdk.State
	if _, err := state.Apply(sdk.Update{To: 1, Full: true, Node: &sdk.Node{}, Set: []sdk.Service{{Name: a}, {Name: b}}}); err != nil {
		t.Fatal(err)
	}
	had := slices.Values([]sdk.Name{b, old})
	changed := []sdk.Change{{Name: a}}
	for _, c := range []struct {
		what    string
		changes sdk.Changes
		want    []sdk.Name
	}{
		{"a Service", sdk.Changes{Services: changed}, []sdk.Name{a}},
		{"the node", sdk.Changes{Services: changed, Node: true}, []sdk.Name{a, b}},
		{"everything", sdk.Changes{Services: changed, Full: true}, []sdk.Name{a, b, old}},
	} {
		got := slices.SortedFunc(maps.Keys(duty.Touched(state, c.changes, had)), sdk.Name.Compare)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s changed: %v", c.what, got)
		}
	}
}

func TestUDP(t *testing.T) {
	dns, ntp, web := sdk.Service{Name: name("dns", sdk.UDP)}, sdk.Service{Name: name("ntp", sdk.UDP)}, sdk.Service{Name: name("web", sdk.TCP)}
	var state sdk.State
	if _, err := state.Apply(sdk.Update{To: 1, Full: true, Node: &sdk.Node{}, Set: []sdk.Service{dns, ntp, web}}); err != nil {
		t.Fatal(err)
	}
	changed := sdk.Changes{Services: []sdk.Change{{Name: dns.Name, After: &dns}, {Name: web.Name, After: &web}, {Name: ntp.Name}}}
	for _, c := range []struct {
		what    string
		changes sdk.Changes
		failed  []sdk.Failure
		want    []sdk.Name
	}{
		{"some changed", changed, nil, []sdk.Name{dns.Name}},
		{"one failed", changed, []sdk.Failure{{Name: dns.Name}}, nil},
		{"everything", sdk.Changes{Full: true}, nil, []sdk.Name{dns.Name, ntp.Name}},
	} {
		var got []sdk.Name
		for _, svc := range duty.UDP(state, c.changes, c.failed) {
			got = append(got, svc.Name)
		}
		slices.SortFunc(got, sdk.Name.Compare)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v", c.what, got)
		}
	}
}

func TestNarrow(t *testing.T) {
	all := sdk.Description{Features: []sdk.Feature{sdk.FeatureIPv4, sdk.FeatureIPv6, sdk.FeatureUDP}}
	six := duty.Narrow(all, func(f sdk.Family) bool { return f == sdk.IPv6 })
	if want := []sdk.Feature{sdk.FeatureIPv6, sdk.FeatureUDP}; !slices.Equal(six.Features, want) {
		t.Errorf("a node with IPv6 alone has %v", six.Features)
	}
	if len(all.Features) != 3 || all.Features[0] != sdk.FeatureIPv4 {
		t.Errorf("what was narrowed is now %v", all.Features)
	}
}

func TestConntrack(t *testing.T) {
	if none := duty.Conntrack("sys/", sdk.ConntrackLimits{}); len(none) > 0 {
		t.Errorf("nothing is asked for, and set is %v", none)
	}
	asked := duty.Conntrack("sys/", sdk.ConntrackLimits{Max: 3, TCPEstablishedTimeout: 24 * time.Hour, UDPTimeout: time.Minute, TCPBeLiberal: true})
	want := duty.Settings{
		{Path: "sys/net/netfilter/nf_conntrack_max", Value: "3"}, {Path: "sys/net/netfilter/nf_conntrack_tcp_timeout_established", Value: "86400"},
		{Path: "sys/net/netfilter/nf_conntrack_udp_timeout", Value: "60"}, {Path: "sys/net/netfilter/nf_conntrack_tcp_be_liberal", Value: "1"},
	}
	if !slices.Equal(asked, want) {
		t.Errorf("asked for is %v", asked)
	}
}

// parameter is one, in a file, of value 0.
func parameter(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "parameter")
	if err := os.WriteFile(path, []byte("0\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestExpect(t *testing.T) {
	path := parameter(t)
	if err := (duty.Settings{{Path: path, Value: "0"}}).Expect(); err != nil {
		t.Error(err)
	}
	var refusal *sdk.Refusal
	if err := (duty.Settings{{Path: path, Value: "2"}}).Expect(); !errors.As(err, &refusal) || !strings.Contains(refusal.Why, path+"=2") {
		t.Errorf("what is otherwise: %v", err)
	}
}

func TestTakeAndRelease(t *testing.T) {
	shared := open(t, t.TempDir())
	log := slog.New(slog.DiscardHandler)
	first, second := parameter(t), parameter(t)
	both := duty.Settings{{Path: first, Value: "1", Must: true}, {Path: second, Value: "1"}}
	if err := both.Take(shared, "some", log); err != nil {
		t.Fatal(err)
	}
	if err := both[:1].Release(shared, "some", log); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{first: "1", second: "0"} {
		if now, err := os.ReadFile(path); err != nil || strings.TrimSpace(string(now)) != want {
			t.Errorf("%s is %q, %v", path, now, err)
		}
	}
	gone := first + "-gone"
	if err := (duty.Settings{{Path: gone, Value: "1"}}).Take(shared, "some", log); err != nil {
		t.Errorf("what may be out of reach: %v", err)
	}
	if err := (duty.Settings{{Path: gone, Value: "1", Must: true}}).Take(shared, "some", log); err == nil {
		t.Error("what must be set cannot be, and nobody says so")
	}
}
