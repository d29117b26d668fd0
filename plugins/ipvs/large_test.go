// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/test/eventually"
)

// widened is a Service with n endpoints, from addresses that begin with first.
func widened(svc sdk.Service, first byte, n int) sdk.Service {
	svc.Cluster = nil
	for i := range n {
		svc.Cluster = append(svc.Cluster, sdk.Endpoint{Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{first, byte(i >> 16), byte(i >> 8), byte(i)}), 8080)})
	}
	return svc
}

// told is an update, and what the dataplane says of each Service that it does not serve
// as that says.
func (l *life) tell(u sdk.Update) map[sdk.Name]error {
	l.Helper()
	u.From, u.To = l.revision, l.revision+1
	if u.Full {
		u.From = 0
	}
	result, err := l.plugin.Sync(l.Context(), u)
	if err != nil {
		l.Fatal(err)
	}
	l.revision = u.To
	failed := make(map[sdk.Name]error)
	for _, f := range result.Failed {
		failed[f.Name] = f.Err
	}
	return failed
}

// brought waits until nothing is left to be written between calls.
func (l *life) brought() {
	l.Helper()
	eventually.True(l, "the rest of a large Service is written", func() bool {
		left, err := l.plugin.Unfinished(l.Context())
		if err != nil {
			l.Fatal(err)
		}
		return left == 0
	})
}

// A Service with very many endpoints comes in the same update as a change of another one,
// by whose name it would be first, and while it is written a third one changes. Neither
// waits for it.
func TestNoServiceWaitsForALargeOne(t *testing.T) {
	l := newLife(t)
	s := many(5)
	if err := l.full(s); err != nil {
		t.Fatal(err)
	}
	l.role(sdk.Active)
	l.fake.counted()
	l.plugin.Among = 0 // all of it between calls

	large := widened(s.Services[0], 11, 5*slice)
	one, other := widened(s.Services[1], 12, 1), widened(s.Services[2], 13, 1)
	failed := l.tell(sdk.Update{Set: []sdk.Service{large, one}})
	var refusal *sdk.Refusal
	if why := failed[large.Name]; len(failed) != 1 || why == nil || errors.As(why, &refusal) || !strings.Contains(why.Error(), "still to be written") {
		t.Fatalf("failed: %v; want %s alone, and how much is left", failed, large.Name)
	}
	if failed := l.tell(sdk.Update{Set: []sdk.Service{other}}); len(failed) > 0 {
		t.Fatalf("failed: %v", failed)
	}
	l.brought()
	requests := l.fake.counted()
	at := func(text string, search func([]string, func(string) bool) int) int {
		return search(requests, func(r string) bool { return strings.HasPrefix(r, "real "+text) })
	}
	first, last := at("11.", slices.IndexFunc[[]string]), at("11.", lastIndex)
	if one, other := at("12.", slices.IndexFunc[[]string]), at("13.", slices.IndexFunc[[]string]); first < 0 || one < 0 || one > first || other < 0 || other > last {
		t.Errorf("the large one is written by requests %d to %d, the others by %d and %d of:\n%.3000s", first, last, one, other, strings.Join(requests, "\n"))
	}
	if failed := l.tell(sdk.Update{Set: []sdk.Service{large}}); len(failed) > 0 { // it is offered again
		t.Errorf("once it is written: %v", failed)
	}
	if wrote := l.fake.counted(); len(wrote) > 0 {
		t.Errorf("it was there, and yet written are\n%.1000s", strings.Join(wrote, "\n"))
	}
}

func lastIndex(all []string, f func(string) bool) int {
	for i, s := range slices.Backward(all) {
		if f(s) {
			return i
		}
	}
	return -1
}

// What serves a large Service stays until as many new endpoints as one slice has are
// there, in a process that made it and in one that begins anew.
func TestALargeServiceIsServedMeanwhile(t *testing.T) {
	for _, anew := range []bool{false, true} {
		l := newLife(t)
		s := many(2)
		s.Services[0] = widened(s.Services[0], 11, 5*slice)
		l.role(sdk.Standby) // so all of it is written at once
		if err := l.full(s); err != nil {
			t.Fatal(err)
		}
		l.role(sdk.Active)
		if anew {
			l.restart()
		}
		l.plugin.Among = 0
		at := serviceKey{family: sdk.IPv4, protocol: sdk.TCP, addr: s.Services[0].Frontends[0].Addr}
		l.fake.refuse = func(string) error { // asked before each request
			serving := 0
			for _, weight := range l.fake.services[at].dests {
				if weight > 0 {
					serving++
				}
			}
			if serving < slice {
				t.Errorf("anew: %t: only %d endpoints serve", anew, serving)
				l.fake.refuse = nil
			}
			return nil
		}
		s.Services[0] = widened(s.Services[0], 14, 5*slice)
		u := s.Update(0)
		if !anew {
			u = sdk.Update{Set: s.Services[:1]}
		}
		if failed := l.tell(u); len(failed) != 1 || failed[s.Services[0].Name] == nil {
			t.Fatalf("anew: %t: failed: %v", anew, failed)
		}
		l.brought()
		l.fake.mu.Lock()
		l.fake.refuse = nil
		dests := l.fake.services[at].dests
		for _, ep := range s.Services[0].Cluster {
			if dests[ep.Addr] != 1 {
				t.Errorf("anew: %t: %s has weight %d", anew, ep.Addr, dests[ep.Addr])
				break
			}
		}
		l.fake.mu.Unlock()
	}
}

// More endpoints than the kernel takes in good time are refused, with what to do; the
// Service keeps what served it, also in a process that begins anew.
func TestTooManyEndpointsAreRefused(t *testing.T) {
	l := newLife(t)
	s := many(2)
	if err := l.full(s); err != nil {
		t.Fatal(err)
	}
	l.role(sdk.Active)
	before := l.fake.picture()
	s.Services[0] = widened(s.Services[0], 11, Ceiling+1)
	var refusal *sdk.Refusal
	for _, u := range []sdk.Update{{Set: s.Services[:1]}, s.Update(0)} {
		if u.Full {
			l.restart()
		}
		failed := l.tell(u)
		if why := failed[s.Services[0].Name]; len(failed) != 1 || !errors.As(why, &refusal) || refusal.Field == "" || refusal.Try == "" {
			t.Errorf("full: %t: failed: %v", u.Full, failed)
		}
		if after := l.fake.picture(); after != before {
			t.Errorf("full: %t: the kernel has another\n%s\nthan\n%s", u.Full, after, before)
		}
	}
}

// To find which endpoints of a large Service go costs a time that grows with their number,
// not with its square.
func TestManyEndpointsAreComparedInGoodTime(t *testing.T) {
	l := newLife(t)
	s := many(1)
	s.Services[0] = widened(s.Services[0], 11, Ceiling)
	l.role(sdk.Standby)
	if err := l.full(s); err != nil {
		t.Fatal(err)
	}
	o := l.plugin.session.families[0].objects
	at := serviceKey{family: sdk.IPv4, protocol: sdk.TCP, addr: s.Services[0].Frontends[0].Addr}
	of := func(n int) time.Duration {
		spec := o.desired[s.Services[0].Name].specs[at]
		spec.dests = spec.dests[len(spec.dests)-n:]
		best := time.Hour
		for range 5 {
			began := time.Now()
			for dest := range o.have.services[at].dests {
				_ = spec.wants(dest)
			}
			best = min(best, time.Since(began))
		}
		return best
	}
	if few, all := of(Ceiling/20), of(Ceiling); all > 8*few {
		t.Errorf("%d endpoints are compared with %d in %v, and with %d in %v", Ceiling, Ceiling/20, few, Ceiling, all)
	}
}
