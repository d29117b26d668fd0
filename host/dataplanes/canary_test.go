// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/pointsman/pointsman/sdk"
)

// perch is where something listens, and says text to whoever comes; empty: nobody does.
func perch(t *testing.T, text string) netip.AddrPort {
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

// TestProve holds the ways that led to the canary to leading there, and if none did, at
// least one.
func TestProve(t *testing.T) {
	lives, other, dead, stranger := perch(t, chirp), perch(t, chirp), perch(t, ""), perch(t, "good day\n")
	far := map[sdk.Name]bool{{Namespace: canarySpace, Service: afar, Protocol: sdk.TCP, Family: sdk.IPv4}: true}
	for name, c := range map[string]struct {
		ways     []way
		before   []netip.AddrPort
		unserved map[sdk.Name]bool
		want     string // in the error; empty: none
	}{
		"all lead there still":               {ways: []way{{near, lives}, {afar, other}}, before: []netip.AddrPort{lives, other}},
		"one leads nowhere any more":         {ways: []way{{near, lives}, {afar, dead}}, before: []netip.AddrPort{lives, dead}, want: dead.String()},
		"one leads to a stranger":            {ways: []way{{near, lives}, {afar, stranger}}, before: []netip.AddrPort{lives, stranger}, want: stranger.String()},
		"one led nowhere before":             {ways: []way{{near, lives}, {afar, dead}}, before: []netip.AddrPort{lives}},
		"one is not served":                  {ways: []way{{near, lives}, {afar, dead}}, before: []netip.AddrPort{lives, dead}, unserved: far},
		"none led there, and one now":        {ways: []way{{near, lives}, {afar, dead}}},
		"none led there, nor now":            {ways: []way{{afar, dead}}, want: "no way leads to the canary"},
		"none led there, and none is served": {ways: []way{{afar, dead}}, unserved: far, want: errUnproved.Error()},
		"one led there that is not served":   {ways: []way{{afar, dead}}, before: []netip.AddrPort{dead}, unserved: far, want: errUnproved.Error()},
		"there is none":                      {want: "no way leads to the canary"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var before []string
			for _, at := range c.before {
				before = append(before, at.String())
			}
			canary := &canary{ways: c.ways}
			err := canary.prove(t.Context(), before, c.unserved)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// TestProveTriesAllWaysAtOnce: callers go to the same dataplane meanwhile, so a way that
// leads nowhere may not keep the others waiting. Here none answers before all were tried.
func TestProveTriesAllWaysAtOnce(t *testing.T) {
	t.Parallel()
	const n = 3
	var tried sync.WaitGroup
	tried.Add(n)
	var ways []way
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		ways = append(ways, way{near, netip.MustParseAddrPort(l.Addr().String())})
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
				_, _ = conn.Write([]byte(chirp))
				_ = conn.Close()
			}
		}()
	}
	canary := &canary{ways: ways}
	if err := canary.prove(t.Context(), nil, nil); err != nil {
		t.Error(err)
	}
	if errs := canary.hearAll(t.Context(), ways); len(errs) > 0 {
		t.Error(errs)
	}
}
