// SPDX-License-Identifier: Apache-2.0

package frame

import (
	"slices"
	"testing"

	"github.com/pointsman/pointsman/sdk"
)

func TestReportIsACopy(t *testing.T) {
	t.Parallel()
	var s status
	before := s.copy().Progress
	s.step()
	s.change(func(r *sdk.Report) { r.Samples = []sdk.Sample{{Name: "a"}} })
	seen := s.copy()
	if seen.Progress <= before {
		t.Errorf("a step is no progress: %+v", seen)
	}
	seen.Samples[0].Name = "b"
	if again := s.copy(); again.Samples[0].Name != "a" {
		t.Error("a reader has changed the report")
	}
}

// TestProgress: CPU time counts as progress, unless the process carries traffic.
func TestProgress(t *testing.T) {
	t.Parallel()
	for _, limits := range [][]sdk.Limit{nil, {sdk.LimitDiesWithProcess}} {
		mode := inMemory(newKernel())
		mode.Description.Limits = limits
		d := New(mode, t.TempDir())
		before := d.Report().Progress
		for began := cpuTime(); cpuTime()-began < 2*effort; {
			// use CPU time
		}
		if progress := d.Report().Progress > before; progress == (limits != nil) {
			t.Errorf("limits %v: CPU time is progress: %t", limits, progress)
		}
	}
}

func TestTouchedUDP(t *testing.T) {
	t.Parallel()
	named := func(service string, p sdk.Protocol) sdk.Name {
		return sdk.Name{Namespace: "ns1", Service: service, Protocol: p, Family: sdk.IPv4}
	}
	dns, ntp, web := sdk.Service{Name: named("dns", sdk.UDP)}, sdk.Service{Name: named("ntp", sdk.UDP)}, sdk.Service{Name: named("web", sdk.TCP)}
	six := dns
	six.Name.Family = sdk.IPv6
	d := new(Dataplane[int])
	if _, err := d.state.Apply(sdk.Update{To: 1, Full: true, Node: &sdk.Node{}, Set: []sdk.Service{dns, six, ntp, web}}); err != nil {
		t.Fatal(err)
	}
	some := sdk.Changes{Services: []sdk.Change{{Name: dns.Name}, {Name: six.Name}, {Name: web.Name}, {Name: named("gone", sdk.UDP)}}}
	for _, c := range []struct {
		what    string
		changes sdk.Changes
		failed  map[sdk.Name]bool
		want    []sdk.Name
	}{
		{"some changed", some, nil, []sdk.Name{dns.Name}},
		{"one failed", some, map[sdk.Name]bool{dns.Name: true}, nil},
		{"a full update", sdk.Changes{Full: true}, nil, []sdk.Name{dns.Name, ntp.Name}},
	} {
		d.failed = c.failed
		var got []sdk.Name
		for _, svc := range d.touchedUDP(sdk.IPv4, d.touched(c.changes)) {
			got = append(got, svc.Name)
		}
		slices.SortFunc(got, sdk.Name.Compare)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v", c.what, got)
		}
	}
}

// TestDescription: a node that cannot serve an IP family does not promise it.
func TestDescription(t *testing.T) {
	t.Parallel()
	k := newKernel()
	d := New(inMemory(k), t.TempDir())
	d.mode.Description.Features = []sdk.Feature{sdk.FeatureIPv4, sdk.FeatureIPv6, sdk.FeatureUDP}
	d.setSession(Session[*sdk.Service]{Families: []Family[*sdk.Service]{newMemory(sdk.IPv6, k)}})
	if want := []sdk.Feature{sdk.FeatureIPv6, sdk.FeatureUDP}; !slices.Equal(d.description().Features, want) {
		t.Errorf("a node with only IPv6 has %v", d.description().Features)
	}
	if all := d.mode.Description.Features; len(all) != 3 || all[0] != sdk.FeatureIPv4 {
		t.Errorf("the mode's own description was changed to %v", all)
	}
}
