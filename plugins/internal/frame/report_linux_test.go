// SPDX-License-Identifier: Apache-2.0

package frame

import (
	"slices"
	"testing"

	"github.com/pointsman/pointsman/sdk"
)

func TestAReportIsACopy(t *testing.T) {
	t.Parallel()
	var s status
	before := s.present().Progress
	s.step()
	s.tell(func(r *sdk.Report) { r.Samples = []sdk.Sample{{Name: "a"}} })
	seen := s.present()
	if seen.Progress <= before {
		t.Errorf("it says %+v", seen)
	}
	seen.Samples[0].Name = "b"
	if again := s.present(); again.Samples[0].Name != "a" {
		t.Error("what reads a report changes it")
	}
}

// desiring is a dataplane in which these Services are desired.
func desiring(t *testing.T, services ...sdk.Service) *Dataplane[int] {
	t.Helper()
	d := new(Dataplane[int])
	if _, err := d.state.Apply(sdk.Update{To: 1, Full: true, Node: &sdk.Node{}, Set: services}); err != nil {
		t.Fatal(err)
	}
	return d
}

func named(service string, p sdk.Protocol) sdk.Name {
	return sdk.Name{Namespace: "ns1", Service: service, Protocol: p, Family: sdk.IPv4}
}

func TestUDP(t *testing.T) {
	t.Parallel()
	dns, ntp, web := sdk.Service{Name: named("dns", sdk.UDP)}, sdk.Service{Name: named("ntp", sdk.UDP)}, sdk.Service{Name: named("web", sdk.TCP)}
	six := dns
	six.Name.Family = sdk.IPv6
	d := desiring(t, dns, six, ntp, web)
	changed := sdk.Changes{Services: []sdk.Change{{Name: dns.Name}, {Name: six.Name}, {Name: web.Name}, {Name: named("gone", sdk.UDP)}}}
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
		for _, svc := range udp(sdk.IPv4, d.state, c.changes, c.failed) {
			got = append(got, svc.Name)
		}
		slices.SortFunc(got, sdk.Name.Compare)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v", c.what, got)
		}
	}
}

// TestDescription: a node without a family's programs does not promise that family.
func TestDescription(t *testing.T) {
	t.Parallel()
	k := newKernel()
	d := New(inMemory(k), t.TempDir())
	d.mode.Description.Features = []sdk.Feature{sdk.FeatureIPv4, sdk.FeatureIPv6, sdk.FeatureUDP}
	d.use(Session[*sdk.Service]{Families: []Family[*sdk.Service]{newMemory(sdk.IPv6, k)}})
	if want := []sdk.Feature{sdk.FeatureIPv6, sdk.FeatureUDP}; !slices.Equal(d.description().Features, want) {
		t.Errorf("a node with IPv6 alone has %v", d.description().Features)
	}
	if all := d.mode.Description.Features; len(all) != 3 || all[0] != sdk.FeatureIPv4 {
		t.Errorf("what was narrowed is now %v", all)
	}
}
