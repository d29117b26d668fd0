// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// A gifted subject has the optional interfaces.
type gifted struct {
	subject
	imported []sdk.AffinityEntry
}

func (g *gifted) Inspect(_ context.Context, f func(sdk.Served) error) error {
	for i := range 20000 {
		svc := bulkService(i, 2)
		served := sdk.Served{Name: svc.Name, Frontend: svc.Frontends[0], Endpoints: []netip.AddrPort{svc.Cluster[0].Addr, svc.Cluster[1].Addr}}
		if i == 5 {
			served.Endpoints = nil
		}
		if err := f(served); err != nil {
			return err
		}
	}
	return nil
}

func (g *gifted) ExportAffinity(_ context.Context, f func(sdk.AffinityEntry) error) error {
	for _, s := range g.imported {
		if err := f(s); err != nil {
			return err
		}
	}
	return nil
}

func (g *gifted) ImportAffinity(_ context.Context, entries []sdk.AffinityEntry) error {
	g.imported = entries
	return nil
}

func TestInspect(t *testing.T) {
	r := local(t, &gifted{})
	n := 0
	err := r.Inspect(soon(t), func(s sdk.Served) error {
		want := bulkService(n, 2)
		if s.Name != want.Name || !s.Frontend.Equal(want.Frontends[0]) {
			t.Fatalf("served %d is %+v", n, s)
		}
		if n == 5 && s.Endpoints != nil || n != 5 && s.Endpoints[1] != want.Cluster[1].Addr {
			t.Fatalf("served %d has %v", n, s.Endpoints)
		}
		n++
		return nil
	})
	if err != nil || n != 20000 {
		t.Errorf("%d arrived, %v", n, err)
	}
	enough := errors.New("enough")
	if err := r.Inspect(soon(t), func(sdk.Served) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("got %v; want the error of the function", err)
	}
}

// Trace returns the packet in a step, or for packets of the node in a connection.
func (g *gifted) Trace(_ context.Context, p sdk.Packet) (sdk.Traced, error) {
	if p.Origin == sdk.OnNode {
		return sdk.Traced{Notes: []string{"eth0 has a program"}, Connections: []string{p.From.String()}}, nil
	}
	return sdk.Traced{Ways: []sdk.Way{
		{Verdict: sdk.Forward, To: p.To, Masquerade: true, Then: "IPVS", Steps: []string{p.From.String(), p.Protocol.String(), p.Origin.String(), p.In}},
		{Verdict: sdk.Drop, To: p.From},
	}}, nil
}

func TestTraceTravels(t *testing.T) {
	r := local(t, &gifted{})
	p := sdk.Packet{Protocol: sdk.UDP, From: netip.MustParseAddrPort("[fd00::1]:0"), To: netip.MustParseAddrPort("[fd00::2]:53"), Origin: sdk.OnPod, In: "cni0"}
	want := "{[{forward [fd00::2]:53 true IPVS [[fd00::1]:0 udp pod cni0]} {drop [fd00::1]:0 false  []}] [] []}"
	if got, err := r.Trace(soon(t), p); err != nil || fmt.Sprint(got) != want {
		t.Errorf("%v, %v; want %s", got, err, want)
	}
	p.Origin = sdk.OnNode
	if got, err := r.Trace(soon(t), p); err != nil || fmt.Sprint(got) != "{[] [eth0 has a program] [[fd00::1]:0]}" {
		t.Errorf("%v, %v", got, err)
	}
	p.From = netip.MustParseAddrPort("10.0.0.1:80")
	if got, err := r.Trace(soon(t), p); err == nil || !strings.Contains(err.Error(), "packet: from 10.0.0.1:80 (node) to [fd00::2]:53") {
		t.Errorf("two families: %v, %v", got, err)
	}
	if got, err := local(t, &subject{}).Trace(soon(t), p); !errors.Is(err, ErrUnsupported) {
		t.Errorf("without a Tracer: %v, %v", got, err)
	}
}

// Watch reports one packet, and continues until its context ends.
func (g *gifted) Watch(ctx context.Context, p sdk.Packet, report func(sdk.WatchedPacket) error) error {
	w := sdk.WatchedPacket{Packet: sdk.Packet{From: netip.MustParseAddrPort("10.0.0.1:0"), To: netip.MustParseAddrPort("10.0.0.2:0")}, Verdict: sdk.Reject, At: "rule 1", Reason: sdk.DropNoEndpoint}
	if p.To.IsValid() {
		w = sdk.WatchedPacket{Packet: p, Verdict: sdk.Forward, At: "10.0.0.9:80"}
	}
	if err := report(w); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

func TestWatchTravels(t *testing.T) {
	r := local(t, &gifted{})
	for _, tt := range []struct {
		asked sdk.Packet
		want  string
	}{
		{sdk.Packet{}, "10.0.0.1:0 > 10.0.0.2:0 protocol 0: reject rule 1 no_endpoint"},
		{sdk.Packet{Protocol: sdk.UDP, From: netip.MustParseAddrPort("10.0.0.3:0"), To: netip.MustParseAddrPort("10.0.0.4:53")}, "10.0.0.3:0 > 10.0.0.4:53 protocol 2: forward 10.0.0.9:80 "},
	} {
		ctx, cancel := context.WithCancel(soon(t))
		got := ""
		err := r.Watch(ctx, tt.asked, func(w sdk.WatchedPacket) error {
			got = fmt.Sprintf("%s > %s protocol %d: %s %s %s", w.From, w.To, w.Protocol, w.Verdict, w.At, w.Reason)
			cancel()
			return nil
		})
		if err != nil || got != tt.want {
			t.Errorf("got %q, %v; want %q", got, err, tt.want)
		}
		cancel()
	}
	enough := errors.New("enough")
	if err := r.Watch(soon(t), sdk.Packet{}, func(sdk.WatchedPacket) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("got %v; want the error of the function", err)
	}
	if err := local(t, &subject{}).Watch(soon(t), sdk.Packet{}, nil); !errors.Is(err, ErrUnsupported) {
		t.Errorf("without a Watcher: %v", err)
	}
}

func TestAffinityTravelsBothWays(t *testing.T) {
	r := configured(t, local(t, &gifted{}), order{})
	var entries []sdk.AffinityEntry
	for i := range 30000 {
		svc := bulkService(i, 1)
		entries = append(entries, sdk.AffinityEntry{Name: svc.Name, Client: svc.Cluster[0].Addr.Addr(), Endpoint: svc.Cluster[0].Addr, Left: time.Duration(i) * time.Second})
	}
	if err := r.ImportAffinity(soon(t), entries); err != nil {
		t.Fatal(err)
	}
	n := 0
	err := r.ExportAffinity(soon(t), func(s sdk.AffinityEntry) error {
		if s != entries[n] {
			t.Fatalf("entry %d is %+v; want %+v", n, s, entries[n])
		}
		n++
		return nil
	})
	if err != nil || n != len(entries) {
		t.Errorf("%d arrived, %v", n, err)
	}
}
