// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/sdk"
)

func web(i int, ends ...string) sdk.Service {
	svc := sdk.Service{
		Name:      sdk.Name{Namespace: "shop", Service: fmt.Sprintf("web%d", i), Protocol: sdk.TCP, Family: sdk.IPv4},
		Frontends: []sdk.Frontend{{Kind: sdk.ClusterIP, Addr: netip.MustParseAddrPort(fmt.Sprintf("172.30.0.%d:80", i)), Policy: sdk.Cluster}},
	}
	for _, e := range ends {
		svc.Cluster = append(svc.Cluster, sdk.Endpoint{Addr: netip.MustParseAddrPort(e)})
	}
	return svc
}

func shown(svc sdk.Service, ends ...string) sdk.Served {
	s := sdk.Served{Name: svc.Name, Frontend: svc.Frontends[0]}
	for _, e := range ends {
		s.Endpoints = append(s.Endpoints, netip.MustParseAddrPort(e))
	}
	return s
}

func TestVerify(t *testing.T) {
	a, b := web(1, "10.0.0.1:80", "10.0.0.2:80"), web(2)
	for _, tc := range []struct {
		name   string
		served []sdk.Served
		want   string
	}{
		{"as sent, in another order", []sdk.Served{shown(b), shown(a, "10.0.0.2:80", "10.0.0.1:80")}, ""},
		{"and what was not expected", []sdk.Served{shown(a, "10.0.0.1:80", "10.0.0.2:80"), shown(b), shown(web(9), "10.0.0.9:80")}, ""},
		{"an endpoint is missing", []sdk.Served{shown(a, "10.0.0.1:80"), shown(b)}, "shop/web1/tcp4 at 172.30.0.1:80 leads to [10.0.0.1:80]"},
		{"one too many", []sdk.Served{shown(a, "10.0.0.1:80", "10.0.0.2:80"), shown(b, "10.0.0.3:80")}, "web2"},
		{"a Service is missing", []sdk.Served{shown(a, "10.0.0.1:80", "10.0.0.2:80")}, "shop/web2/tcp4 at 172.30.0.2:80 is not served"},
	} {
		v := Expect([]sdk.Service{a, b})
		for _, s := range tc.served {
			v.Saw(s)
		}
		err := v.Differences()
		if err == nil != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
		}
	}
}

// TestVerifyNothing: a dataplane that names nothing in Standby learns what is asked of it.
func TestVerifyNothing(t *testing.T) {
	err := Expect([]sdk.Service{web(1)}).Differences()
	if err == nil || !strings.Contains(err.Error(), "is not served") || !strings.Contains(err.Error(), "in Standby it has to name what it would serve") {
		t.Errorf("%v", err)
	}
	v := Expect([]sdk.Service{web(1), web(2)})
	v.Saw(shown(web(1)))
	if err := v.Differences(); err == nil || strings.Contains(err.Error(), "in Standby") {
		t.Errorf("of one that names some: %v", err)
	}
}

// TestVerifyMany names a few, and counts the rest.
func TestVerifyMany(t *testing.T) {
	var sent []sdk.Service
	for i := range 40 {
		sent = append(sent, web(i))
	}
	err := Expect(sent).Differences()
	if err == nil || strings.Count(err.Error(), "not served") != maxShown || !strings.Contains(err.Error(), "and 35 more") {
		t.Errorf("%v", err)
	}
}
