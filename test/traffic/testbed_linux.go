// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"context"
	"net/netip"
	"testing"

	"github.com/pointsman/pointsman/sdk/sdktest/netns"
)

// Testbed opens a testbed (netns.New or netns.Apart), until the test ends.
func Testbed(t testing.TB, open func() (*netns.Testbed, error)) *netns.Testbed {
	t.Helper()
	g, err := open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	return g
}

// Answer answers TCP at an endpoint of a testbed with what it receives, until the test ends.
func Answer(t testing.TB, g *netns.Testbed, at netip.AddrPort) {
	t.Helper()
	host, err := g.Host(at.Addr())
	if err != nil {
		t.Fatal(err)
	}
	l, err := host.Listen(t.Context(), "tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	context.AfterFunc(t.Context(), func() { _ = l.Close() })
	go Echo(l) // ends with the listener
}

// Callers returns callers of an address, by the addresses from which they call.
func Callers(t testing.TB, g *netns.Testbed, to netip.AddrPort, from map[string]netip.Addr) (all []Caller) {
	t.Helper()
	for name, addr := range from {
		host, err := g.Host(addr)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, From(host, name, addr, to))
	}
	return all
}
