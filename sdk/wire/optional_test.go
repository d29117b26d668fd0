// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// A carrier and inspectable subject.
type gifted struct {
	subject
	seeded []sdk.AffinityEntry
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
	for _, s := range g.seeded {
		if err := f(s); err != nil {
			return err
		}
	}
	return nil
}

func (g *gifted) ImportAffinity(_ context.Context, entries []sdk.AffinityEntry) error {
	g.seeded = entries
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
		t.Errorf("%d came, %v", n, err)
	}
	enough := errors.New("enough")
	if err := r.Inspect(soon(t), func(sdk.Served) error { return enough }); err != enough {
		t.Errorf("got %v; want the function's own error", err)
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
		t.Errorf("%d came back, %v", n, err)
	}
}
