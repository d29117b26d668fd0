// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

func addr(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

// web is a Service at a ClusterIP, with these endpoints.
func web(endpoints ...string) sdk.Service {
	svc := sdk.Service{
		Name:      sdk.Name{Namespace: "ns1", Service: "web", Port: "http", Protocol: sdk.TCP, Family: sdk.IPv4},
		Frontends: []sdk.Frontend{{Kind: sdk.ClusterIP, Addr: addr("127.30.0.41:20080"), Policy: sdk.Cluster}},
	}
	for _, ep := range endpoints {
		svc.Cluster = append(svc.Cluster, sdk.Endpoint{Addr: addr(ep)})
	}
	return svc
}

func section1(t *testing.T, svc sdk.Service) section {
	t.Helper()
	s, err := want(svc)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestRender shows the configuration of one Service with everything that a Service can have here.
func TestRender(t *testing.T) {
	svc := web("10.180.1.1:8080", "10.180.0.1:8080")
	svc.Affinity = 3 * time.Hour
	svc.Frontends = append(svc.Frontends, sdk.Frontend{
		Kind: sdk.LoadBalancer, Addr: addr("127.192.2.80:20080"), Policy: sdk.Cluster,
		Sources: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("192.0.2.0/24")},
	})
	s := section1(t, svc)
	got := render(setting{socket: "/run/x/s", connections: 1000, clients: map[sdk.Name]string{s.Name: "/run/x/clients"}}, map[sdk.Name]section{s.Name: s})
	const wanted = `global
  stats socket /run/x/s level admin mode 600 expose-fd listeners
  maxconn 1000
defaults
  mode tcp
  balance random(1)
  timeout connect 3s
  timeout client 24d
  timeout server 24d
  option clitcpka
  option srvtcpka
  retries 3
  option redispatch 1
listen ns1.web.http.tcp4
  bind 127.30.0.41:20080
  bind 127.192.2.80:20080
  acl admitted-1 src 10.0.0.0/8 192.0.2.0/24
  tcp-request connection reject if { dst 127.192.2.80 } { dst_port 20080 } !admitted-1
  tcp-request connection reject if { nbsrv eq 0 } !{ stopping }
  stick-table type ip size 65536 expire 10800000ms
  stick on src
  use-server %[src,map_ip(/run/x/clients)] if { src,map_ip(/run/x/clients) -m found } !{ src,in_table(ns1.web.http.tcp4) }
  server 10.180.0.1:8080 10.180.0.1:8080
  server 10.180.1.1:8080 10.180.1.1:8080
`
	if got != wanted {
		t.Errorf("got\n%s\nwant\n%s", got, wanted)
	}
}

// TestNamesCannotWriteConfiguration: a name with anything in it stays one word, and no two are the same.
func TestNamesCannotWriteConfiguration(t *testing.T) {
	seen := make(map[string]string)
	for _, n := range []sdk.Name{
		{Namespace: "a", Service: "b", Port: "c"},
		{Namespace: "a.b", Service: "c"},
		{Namespace: "a", Service: "b.c"},
		{Namespace: "a", Service: "b\n  bind 0.0.0.0:22", Port: "#"},
		{Namespace: "a_2eb", Service: "c"},
		{Namespace: "ä", Service: "c/d"},
	} {
		n.Protocol, n.Family = sdk.TCP, sdk.IPv4
		id := sectionName(n)
		if strings.ContainsFunc(id, func(r rune) bool {
			return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyz0123456789-_.", r)
		}) {
			t.Errorf("%q is called %q", n, id)
		}
		if seen[id] != "" {
			t.Errorf("%q and %q are both called %q", seen[id], n, id)
		}
		seen[id] = n.String()
	}
}

// TestManyRangesAreManyLines: HAProxy takes no line of more than 64 words, nor of more than 2 KiB.
func TestManyRangesAreManyLines(t *testing.T) {
	svc := web()
	for i := range 200 {
		svc.Frontends[0].Sources = append(svc.Frontends[0].Sources, netip.MustParsePrefix(fmt.Sprintf("10.%d.0.0/16", i)))
	}
	s := section1(t, svc)
	lines := strings.Split(render(setting{}, map[sdk.Name]section{s.Name: s}), "\n")
	acls := slices.DeleteFunc(lines, func(l string) bool { return !strings.HasPrefix(l, "  acl admitted-0 src ") })
	words := 0
	for _, l := range acls {
		words += len(strings.Fields(l)) - 3
		if len(strings.Fields(l)) > 64 || len(l) > 2047 {
			t.Errorf("too long: %s", l)
		}
	}
	if words != 200 {
		t.Errorf("%d ranges in %d lines, want 200", words, len(acls))
	}
}

func TestWhatIsRefused(t *testing.T) {
	udp, local, zone := web(), web(), web("10.0.0.1:80")
	udp.Name.Protocol = sdk.UDP
	local.Frontends[0].Policy = sdk.Local
	zone.Cluster[0].Addr = addr("[fe80::1%eth0]:80")
	for name, svc := range map[string]sdk.Service{"UDP": udp, "the Local policy": local, "an endpoint with a zone": zone} {
		if _, err := want(svc); !errors.As(err, new(*sdk.Refusal)) {
			t.Errorf("%s: %v, want a refusal", name, err)
		}
	}
	for _, text := range []string{`{"thread": 2}`, `{"threads": "two"}`, `{"threads": 65}`, `[`} {
		if _, err := options([]byte(text)); !errors.As(err, new(*sdk.Refusal)) {
			t.Errorf("options %s: %v, want a refusal", text, err)
		}
	}
	for _, text := range []string{"", "null", "{}", `{"threads": 2, "program": "/opt/haproxy"}`} {
		if _, err := options([]byte(text)); err != nil {
			t.Errorf("options %q: %v", text, err)
		}
	}
}

// TestWhatFailedGivesWay: a Service that is served as before has no address that another one has now.
func TestWhatFailedGivesWay(t *testing.T) {
	old, now := section1(t, web()), section1(t, web())
	now.Name.Service = "other"
	old.Frontends = append(slices.Clone(old.Frontends), sdk.Frontend{Kind: sdk.ExternalIP, Addr: addr("127.1.1.1:80"), Policy: sdk.Cluster})
	all := map[sdk.Name]section{old.Name: old, now.Name: now}
	settle(all, map[sdk.Name]bool{old.Name: true})
	if got := all[old.Name].Frontends; len(got) != 1 || got[0].Addr != addr("127.1.1.1:80") {
		t.Errorf("the one that failed has %v", got)
	}
	if got := all[now.Name].Frontends; len(got) != 1 {
		t.Errorf("the other one has %v", got)
	}
}

func TestLimits(t *testing.T) {
	s := section1(t, web())
	one := map[sdk.Name]section{s.Name: s}
	for descriptors, wanted := range map[uint64]int{1024: (1024 - 1 - 200) / 2, 1 << 40: 99_900, 100: 100} {
		if got := limits(descriptors, one); got != wanted {
			t.Errorf("with %d descriptors: %d connections, want %d", descriptors, got, wanted)
		}
	}
}
