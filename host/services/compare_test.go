// SPDX-License-Identifier: Apache-2.0

package services

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/sdk"
)

// TestCompare describes frontends that are not served as desired.
func TestCompare(t *testing.T) {
	name := sdk.Name{Namespace: "shop", Service: "web", Protocol: sdk.TCP, Family: sdk.IPv4}
	addrs := func(text string) (list []netip.AddrPort) {
		for word := range strings.FieldsSeq(text) {
			list = append(list, netip.MustParseAddrPort(word))
		}
		return list
	}
	at := func(addr string, policy sdk.Policy) sdk.Frontend {
		return sdk.Frontend{Kind: sdk.ExternalIP, Addr: netip.MustParseAddrPort(addr), Policy: policy}
	}
	s := sdk.Service{Name: name, Frontends: []sdk.Frontend{at("192.0.2.1:80", sdk.Cluster), at("192.0.2.2:80", sdk.Local)}}
	for _, addr := range addrs("10.0.0.1:80 10.0.0.2:80") {
		s.Cluster = append(s.Cluster, sdk.Endpoint{Addr: addr})
	}
	s.Local = s.Cluster[:1]
	served := func(f sdk.Frontend, endpoints string) sdk.Served {
		return sdk.Served{Name: name, Frontend: f, Endpoints: addrs(endpoints)}
	}
	for _, tt := range []struct {
		what  string
		found []sdk.Served
		want  []string
	}{
		{"as desired", []sdk.Served{served(s.Frontends[0], "10.0.0.2:80 10.0.0.1:80"), served(s.Frontends[1], "10.0.0.1:80")}, []string{"", ""}},
		{"nothing", nil, []string{"it is missing", "it is missing"}},
		{"another policy", []sdk.Served{served(s.Frontends[0], "10.0.0.2:80 10.0.0.1:80"), served(at("192.0.2.2:80", sdk.Cluster), "10.0.0.1:80")}, []string{"", "it is missing"}},
		{"other endpoints", []sdk.Served{served(s.Frontends[0], "10.0.0.1:80"), served(s.Frontends[1], "")},
			[]string{"expected: 10.0.0.1:80, 10.0.0.2:80", "expected: 10.0.0.1:80"}},
		{"a superfluous frontend", []sdk.Served{served(s.Frontends[0], "10.0.0.1:80 10.0.0.2:80"), served(s.Frontends[1], "10.0.0.1:80"), served(at("192.0.2.3:80", sdk.Cluster), "10.0.0.1:80")},
			[]string{"", "", "it is unexpected"}},
	} {
		var got []string
		for _, row := range Compare(s, tt.found) {
			got = append(got, row.Differs)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.what, got, tt.want)
		}
	}
}

// TestDifferences names a few frontends that are not served as sent, and counts the rest. It
// ignores superfluous ones.
func TestDifferences(t *testing.T) {
	var sent []sdk.Service
	found := make(map[sdk.Name][]sdk.Served)
	for i := range 5 {
		f := sdk.Frontend{Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}), 80)}
		name := sdk.Name{Namespace: "shop", Service: fmt.Sprint("web", i)}
		sent = append(sent, sdk.Service{Name: name, Frontends: []sdk.Frontend{f}})
		found[name] = []sdk.Served{{Name: name, Frontend: f}, {Name: name, Frontend: sdk.Frontend{Addr: netip.MustParseAddrPort("192.0.2.99:80")}}}
	}
	if err := Differences(sent, found); err != nil {
		t.Error(err)
	}
	delete(found, sent[0].Name)
	if err := Differences(sent, found); err == nil || !strings.Contains(err.Error(), "shop/web0") || strings.Contains(err.Error(), "web1") {
		t.Errorf("one frontend is missing: %v", err)
	}
	if err := Differences(sent, nil); err == nil || !strings.Contains(err.Error(), "web2") || !strings.Contains(err.Error(), " and 2 more; Inspect names no frontend") {
		t.Errorf("all frontends are missing: %v", err)
	}
}
