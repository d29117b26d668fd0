// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

var (
	client  = netip.MustParseAddr("198.18.0.1")
	started = time.Date(2026, 1, 10, 8, 0, 0, 0, time.UTC)
)

// picks returns how often each endpoint is picked in n connections.
func picks(s *Service, n int) map[netip.AddrPort]int {
	value := s.Value()
	count := make(map[netip.AddrPort]int)
	for range n {
		count[s.pick(value, value.Cluster, client, nil, started)]++
	}
	return count
}

func TestRoundRobinIsFair(t *testing.T) {
	for n := 1; n <= 7; n++ {
		var endpoints string
		for i := range n {
			endpoints += fmt.Sprintf(" 10.1.0.%d:80", i+1)
		}
		got := picks(NewService(svc("web", "", endpoints)), 12*n)
		if values := slices.Compact(slices.Collect(maps.Values(got))); len(got) != n || len(values) != 1 {
			t.Errorf("%d endpoints were picked %v", n, got)
		}
	}
}

// Connections under one policy do not affect the round robin of the other one.
func TestRoundRobinPerList(t *testing.T) {
	web := svc("web", "", "10.1.0.1:80 10.1.0.2:80")
	web.Local = slices.Clone(web.Cluster)
	s := NewService(web)
	value := s.Value()
	count := make(map[netip.AddrPort]int)
	for range 10 {
		s.pick(value, value.Local, client, nil, started)
		count[s.pick(value, value.Cluster, client, nil, started)]++
	}
	if len(count) != 2 {
		t.Errorf("with both policies in use, Cluster finds only %v", count)
	}
}

func TestTriedGoLast(t *testing.T) {
	s := NewService(svc("web", "", "10.1.0.1:80 10.1.0.2:80 10.1.0.3:80"))
	value := s.Value()
	for range 5 {
		var tried []netip.AddrPort
		for range 3 {
			ep := s.pick(value, value.Cluster, client, tried, started)
			if slices.Contains(tried, ep) {
				t.Fatalf("%s is tried again after %v", ep, tried)
			}
			tried = append(tried, ep)
		}
		if ep := s.pick(value, value.Cluster, client, tried, started); !ep.IsValid() {
			t.Error("no endpoint is picked when all were tried")
		}
	}
}

func sticky(endpoints string) sdk.Service {
	s := svc("web", "", endpoints)
	s.Affinity = time.Minute
	return s
}

func TestAffinity(t *testing.T) {
	const two = "10.1.0.1:80 10.1.0.2:80"
	pickAt := func(s *Service, after time.Duration, tried ...netip.AddrPort) netip.AddrPort {
		value := s.Value()
		return s.pick(value, value.Cluster, client, tried, started.Add(after))
	}
	t.Run("kept while used", func(t *testing.T) {
		s := NewService(sticky(two))
		first := pickAt(s, 0)
		for i := range 10 {
			if ep := pickAt(s, time.Duration(i)*50*time.Second); ep != first {
				t.Fatalf("after %d uses %s becomes %s", i, first, ep)
			}
		}
	})
	t.Run("expires without use", func(t *testing.T) {
		s := NewService(sticky(two))
		if first := pickAt(s, 0); pickAt(s, time.Minute) == first {
			t.Error("after the affinity has expired, the same endpoint is picked")
		}
	})
	t.Run("another endpoint when the first one fails, which is kept then", func(t *testing.T) {
		s := NewService(sticky(two))
		first := pickAt(s, 0)
		second := pickAt(s, 0, first)
		if second == first || pickAt(s, time.Second) != second {
			t.Errorf("from %s to %s, then %s", first, second, pickAt(s, time.Second))
		}
	})
	t.Run("removed with the endpoint, also if that is added again", func(t *testing.T) {
		s := NewService(sticky(two))
		first := pickAt(s, 0)
		left := sticky(two)
		left.Cluster = slices.DeleteFunc(left.Cluster, func(e sdk.Endpoint) bool { return e.Addr == first })
		s.Set(left)
		s.Set(sticky(two))
		if n := len(s.ExportAffinity(started)); n != 0 {
			t.Errorf("%d clients still keep an endpoint", n)
		}
	})
	t.Run("exported and imported", func(t *testing.T) {
		a, b := NewService(sticky(two)), NewService(sticky(two))
		first := pickAt(a, 0)
		b.ImportAffinity(a.ExportAffinity(started), started)
		for range 3 {
			if ep := pickAt(b, time.Second); ep != first {
				t.Errorf("the successor sends to %s, not %s", ep, first)
			}
		}
	})
}

// At most MaxAffinity clients keep an endpoint.
func TestAffinityIsBounded(t *testing.T) {
	s := NewService(sticky("10.1.0.1:80 10.1.0.2:80"))
	value := s.Value()
	addr := netip.MustParseAddr("10.0.0.0")
	for i := range 3 * MaxAffinity {
		addr = addr.Next()
		s.pick(value, value.Cluster, addr, nil, started.Add(time.Duration(i)*time.Microsecond))
	}
	if n := len(s.affinity); n > MaxAffinity {
		t.Errorf("%d clients keep an endpoint", n)
	}
	s.ExpireAffinity(started.Add(time.Hour))
	if n := len(s.affinity); n != 0 {
		t.Errorf("after an hour %d clients keep an endpoint", n)
	}
}

// For the race detector: connections and changes run concurrently.
func TestConcurrentPick(t *testing.T) {
	s := NewService(sticky("10.1.0.1:80 10.1.0.2:80"))
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 500 {
				value := s.Value()
				s.pick(value, value.Cluster, client, nil, time.Now())
			}
		})
	}
	for i := range 100 {
		s.Set(sticky([]string{"10.1.0.1:80", "10.1.0.2:80 10.1.0.3:80"}[i%2]))
	}
	all.Wait()
}
