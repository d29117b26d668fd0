// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"
)

func TestNeeds(t *testing.T) {
	v4 := Name{Protocol: TCP, Family: IPv4}
	at := ap("192.0.2.1:80")
	for _, c := range []struct {
		s    Service
		want []Feature
	}{
		{Service{}, nil},
		{Service{Name: v4, Frontends: []Frontend{{Kind: ClusterIP, Addr: at, Policy: Cluster}}}, []Feature{FeatureIPv4}},
		{Service{Name: Name{Protocol: UDP, Family: IPv6}}, []Feature{FeatureIPv6, FeatureUDP}},
		{Service{Name: Name{Protocol: SCTP, Family: IPv4}}, []Feature{FeatureIPv4, FeatureSCTP}},
		{Service{Name: v4, Frontends: []Frontend{{Kind: NodePort, Addr: ap("0.0.0.0:80"), Policy: Cluster}}}, []Feature{FeatureIPv4, FeatureNodePort}},
		{Service{Name: v4, Frontends: []Frontend{{Kind: NodePort, Addr: at, Policy: Cluster}}}, []Feature{FeatureIPv4}},
		{Service{Name: v4, Frontends: []Frontend{{Kind: ClusterIP, Addr: at, Policy: Local}}}, []Feature{FeatureIPv4, FeatureLocalPolicy}},
		{Service{Name: v4, Frontends: []Frontend{{Addr: at}, {Addr: at, Sources: prefixes("10.0.0.0/8")}}}, []Feature{FeatureIPv4, FeatureSourceRanges}},
		{Service{Name: v4, Affinity: time.Second}, []Feature{FeatureIPv4, FeatureAffinity}},
		{sample(), []Feature{FeatureIPv4, FeatureUDP, FeatureNodePort, FeatureLocalPolicy, FeatureSourceRanges, FeatureAffinity}},
	} {
		if got := c.s.Needs(); !slices.Equal(got, c.want) {
			t.Errorf("%v needs %v, want %v", c.s, got, c.want)
		}
	}
}

// TestWords: every value has a word, and an unknown value its number.
func TestWords(t *testing.T) {
	name := sample().Name
	plain := Name{Namespace: "ns1", Service: "web", Protocol: TCP, Family: IPv6}
	odd := Name{Namespace: "ns1", Service: "web", Protocol: 9, Family: 9}
	for _, c := range []struct {
		value fmt.Stringer
		want  string
	}{
		{TCP, "tcp"}, {UDP, "udp"}, {SCTP, "sctp"}, {Protocol(0), "protocol(0)"}, {Protocol(4), "protocol(4)"},
		{IPv4, "ipv4"}, {IPv6, "ipv6"}, {Family(0), "family(0)"}, {Family(255), "family(255)"},
		{ClusterIP, "cluster-ip"}, {NodePort, "node-port"}, {ExternalIP, "external-ip"}, {LoadBalancer, "load-balancer"},
		{Kind(0), "kind(0)"}, {Kind(5), "kind(5)"},
		{Cluster, "cluster"}, {Local, "local"}, {Policy(0), "policy(0)"}, {Policy(3), "policy(3)"},
		{Standby, "standby"}, {Active, "active"}, {Draining, "draining"}, {Yielded, "yielded"}, {Role(0), "role(0)"}, {Absent, "absent"}, {Role(6), "role(6)"},
		{name, "ns1/web:http/udp4"}, {plain, "ns1/web/tcp6"}, {odd, "ns1/web/protocol(9)?"},
		{sample().Frontends[0], "cluster-ip 172.30.0.41:80"},
		{sample().Frontends[1], "node-port *:30080 local"},
		{Frontend{Kind: NodePort, Addr: ap("[::]:30080"), Policy: Cluster}, "node-port *:30080"},
		{Frontend{Kind: NodePort, Addr: ap("192.0.2.10:30080"), Policy: Cluster}, "node-port 192.0.2.10:30080"},
		{sample().Frontends[2], "load-balancer 203.0.113.5:80 local from 10.0.0.0/8 198.18.0.0/15"},
		{Frontend{Kind: ExternalIP, Addr: ap("[2001:db8::5]:80"), Policy: Cluster, Sources: prefixes("fd00::/8")}, "external-ip [2001:db8::5]:80 from fd00::/8"},
		{sample().Cluster[0], "10.180.0.1:8080 here"}, {sample().Cluster[1], "10.180.1.1:8080"},
	} {
		if got := c.value.String(); got != c.want {
			t.Errorf("%#v is %q, want %q", c.value, got, c.want)
		}
	}
	for name, want := range map[Name]string{
		{Protocol: TCP, Family: IPv4}: "tcp4", {Protocol: SCTP, Family: IPv6}: "sctp6", {Protocol: UDP}: "udp?",
	} {
		if got := name.Network(); got != want {
			t.Errorf("network %q, want %q", got, want)
		}
	}
}

// TestKnownRoles: the zero value is not a known role.
func TestKnownRoles(t *testing.T) {
	for role := range Role(8) {
		if want := role >= Standby && role <= Yielded; role.Known() != want {
			t.Errorf("%s is known: %t", role, !want)
		}
	}
}

func TestRefusal(t *testing.T) {
	for _, c := range []struct {
		refusal Refusal
		want    string
	}{
		{Refusal{Why: "it cannot"}, "it cannot"},
		{Refusal{Field: "protocol", Why: "no SCTP here"}, "protocol: no SCTP here"},
		{Refusal{Why: "module ip_vs is missing", Try: "modprobe ip_vs"}, "module ip_vs is missing; try: modprobe ip_vs"},
		{Refusal{Field: "scheduler", Why: "no mh", Try: "modprobe ip_vs_mh"}, "scheduler: no mh; try: modprobe ip_vs_mh"},
	} {
		var found *Refusal
		err := fmt.Errorf("configure: %w", &c.refusal)
		if c.refusal.Error() != c.want || !errors.As(err, &found) || *found != c.refusal {
			t.Errorf("got %q, want %q", c.refusal.Error(), c.want)
		}
	}
	if !errors.Is(fmt.Errorf("sync: %w", ErrResync), ErrResync) {
		t.Error("ErrResync is lost in another error")
	}
}
