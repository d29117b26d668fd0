// SPDX-License-Identifier: Apache-2.0

package canary

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/pointsman/pointsman/host/track"
	"github.com/pointsman/pointsman/sdk"
)

// listening returns the address of a listener that answers with text; nothing listens if it is empty.
func listening(t *testing.T, text string) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() { // ends with the listener
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte(text))
			_ = conn.Close()
		}
	}()
	if text == "" {
		_ = l.Close()
	}
	return netip.MustParseAddrPort(l.Addr().String())
}

// TestProve: all targets that answered before must answer or, if none did, at least one target.
func TestProve(t *testing.T) {
	lives, other, dead, stranger := listening(t, greeting), listening(t, greeting), listening(t, ""), listening(t, "good day\n")
	far := map[sdk.Name]bool{{Namespace: Namespace, Service: onTest, Protocol: sdk.TCP, Family: sdk.IPv4}: true}
	for name, c := range map[string]struct {
		targets  []target
		before   []netip.AddrPort
		unserved map[sdk.Name]bool
		want     string // part of the error; empty if there is none
	}{
		"all targets still answer":                           {targets: []target{{onNode, lives}, {onTest, other}}, before: []netip.AddrPort{lives, other}},
		"a target stops answering":                           {targets: []target{{onNode, lives}, {onTest, dead}}, before: []netip.AddrPort{lives, dead}, want: dead.String()},
		"another program answers at a target":                {targets: []target{{onNode, lives}, {onTest, stranger}}, before: []netip.AddrPort{lives, stranger}, want: stranger.String()},
		"a target did not answer before":                     {targets: []target{{onNode, lives}, {onTest, dead}}, before: []netip.AddrPort{lives}},
		"a target's Service is not served":                   {targets: []target{{onNode, lives}, {onTest, dead}}, before: []netip.AddrPort{lives, dead}, unserved: far},
		"none answered before, one answers now":              {targets: []target{{onNode, lives}, {onTest, dead}}},
		"none answered before, none answers now":             {targets: []target{{onTest, dead}}, want: "no connection reaches the canary"},
		"none answered before, and no Service is served":     {targets: []target{{onTest, dead}}, unserved: far, want: ErrUnproved.Error()},
		"the only target that answered before is not served": {targets: []target{{onTest, dead}}, before: []netip.AddrPort{dead}, unserved: far, want: ErrUnproved.Error()},
		"there are no targets":                               {want: "no connection reaches the canary"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var before []string
			for _, at := range c.before {
				before = append(before, at.String())
			}
			canary := &Canary{targets: c.targets}
			err := canary.Prove(t.Context(), before, c.unserved)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// TestProbesAllAtOnce: users' connections go to the same dataplane meanwhile, so one target must not
// delay the others. Here no target answers before all were tried.
func TestProbesAllAtOnce(t *testing.T) {
	t.Parallel()
	const n = 3
	var tried sync.WaitGroup
	tried.Add(n)
	var targets []target
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		targets = append(targets, target{onNode, netip.MustParseAddrPort(l.Addr().String())})
		go func() { // ends with the listener
			for first := true; ; first = false {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				if first {
					tried.Done()
					tried.Wait()
				}
				_, _ = conn.Write([]byte(greeting))
				_ = conn.Close()
			}
		}()
	}
	canary := &Canary{targets: targets}
	if err := canary.Prove(t.Context(), nil, nil); err != nil {
		t.Error(err)
	}
	if errs := probeAll(t.Context(), targets, provedInARow, proveAttempts, proofLimit); errors.Join(errs...) != nil {
		t.Error(errs)
	}
}

// TestSlowAnswers: on a busy machine answers take longer than the limit, and Prove waits for them.
func TestSlowAnswers(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	time.AfterFunc(2*proofLimit, func() { answer(l) }) // ends with the listener
	if err := probe(t.Context(), target{onNode, netip.MustParseAddrPort(l.Addr().String())}, provedInARow, proveAttempts, proofLimit); err != nil {
		t.Error(err)
	}
}

// TestBeginEnd creates and removes the Services. Their endpoint answers.
func TestBeginEnd(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		addr string
		want []string // the Services
	}{
		"IPv4": {"127.0.0.1", []string{onTest, onNode}},
		"IPv6": {"::1", []string{onNode}}, // 192.0.2.0/24 is not of this family
	} {
		t.Run(name, func(t *testing.T) {
			tracker := track.New(nil)
			tracker.Synced()
			canary := New(tracker, "node", []netip.Addr{netip.MustParseAddr(c.addr)})
			for range 2 { // an existing Service stays unchanged
				if err := canary.Begin(); err != nil {
					t.Fatal(err)
				}
			}
			var got []string
			for s := range tracker.All() {
				got = append(got, s.Key.Name)
			}
			if slices.Sort(got); !slices.Equal(got, c.want) {
				t.Errorf("the Services are %v, want %v", got, c.want)
			}
			if err := connect(t.Context(), netip.MustParseAddrPort(canary.listener.Addr().String())); err != nil {
				t.Errorf("the endpoint does not answer: %v", err)
			}
			canary.End()
			canary.End()
			if left := slices.Collect(tracker.All()); len(left) != 0 || canary.all() != nil {
				t.Errorf("%v are left", left)
			}
		})
	}
}

// TestProbe finds the targets that answer. On a node without a network nothing can be proved.
func TestProbe(t *testing.T) {
	t.Parallel()
	lives, dead := listening(t, greeting), listening(t, "")
	canary := &Canary{targets: []target{{onNode, lives}, {onTest, dead}}}
	if got := canary.Probe(t.Context()); !slices.Equal(got, []string{lives.String()}) {
		t.Errorf("%v answer, want only %s", got, lives)
	}
	if err := New(nil, "node", nil).Prove(t.Context(), nil, nil); !errors.Is(err, ErrUnproved) {
		t.Errorf("with only a loopback address: %v", err)
	}
}

// TestObjects compares a Service with its EndpointSlice.
func TestObjects(t *testing.T) {
	for name, c := range map[string]struct {
		s       service
		family  corev1.IPFamily
		address discoveryv1.AddressType
		kind    corev1.ServiceType
	}{
		"on the node, IPv4": {service{onNode, netip.MustParseAddr("192.0.2.10"), 1024, 30000, netip.MustParseAddrPort("192.0.2.10:4000")}, corev1.IPv4Protocol, discoveryv1.AddressTypeIPv4, corev1.ServiceTypeNodePort},
		"on the node, IPv6": {service{onNode, netip.MustParseAddr("2001:db8::1"), 1024, 30000, netip.MustParseAddrPort("[2001:db8::1]:4000")}, corev1.IPv6Protocol, discoveryv1.AddressTypeIPv6, corev1.ServiceTypeNodePort},
		"on no node":        {service{onTest, testAddr, testPort, 0, netip.MustParseAddrPort("192.0.2.10:4000")}, corev1.IPv4Protocol, discoveryv1.AddressTypeIPv4, corev1.ServiceTypeClusterIP},
	} {
		svc, slice := c.s.object(), c.s.slice("node")
		if svc.Spec.Type != c.kind || len(svc.Spec.IPFamilies) != 1 || svc.Spec.IPFamilies[0] != c.family || svc.Spec.ClusterIP != c.s.addr.String() {
			t.Errorf("%s: the Service is %+v", name, svc.Spec)
		}
		if port := svc.Spec.Ports[0]; port.Port != int32(c.s.port) || port.NodePort != int32(c.s.nodePort) {
			t.Errorf("%s: its port is %+v", name, port)
		}
		if slice.AddressType != c.address || slice.Namespace != svc.Namespace || slice.Labels[discoveryv1.LabelServiceName] != svc.Name || *slice.Endpoints[0].NodeName != "node" {
			t.Errorf("%s: the slice is %+v", name, slice)
		}
		if got := netip.AddrPortFrom(netip.MustParseAddr(slice.Endpoints[0].Addresses[0]), uint16(*slice.Ports[0].Port)); got != c.s.endpoint {
			t.Errorf("%s: the endpoint is %s, want %s", name, got, c.s.endpoint)
		}
	}
}

// TestAddress chooses the node's first IPv4 address, or else its first address. Without a network it
// is the loopback address.
func TestAddress(t *testing.T) {
	v4, v6 := netip.MustParseAddr("192.0.2.10"), netip.MustParseAddr("2001:db8::1")
	for _, c := range []struct {
		addrs []netip.Addr
		want  string
	}{{nil, "127.0.0.1"}, {[]netip.Addr{v6}, v6.String()}, {[]netip.Addr{v6, v4}, v4.String()}} {
		if got := New(nil, "node", c.addrs).addr; got.String() != c.want {
			t.Errorf("of %v: %s, want %s", c.addrs, got, c.want)
		}
	}
	if err := New(nil, "node", []netip.Addr{netip.MustParseAddr("203.0.113.1")}).Begin(); err == nil || !strings.Contains(err.Error(), "create the canary") {
		t.Errorf("at an address that the node does not have: %v", err)
	}
}
