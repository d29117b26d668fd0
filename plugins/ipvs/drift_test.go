// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/test/eventually"
)

// What another process removes is put back, and nothing else is written.
func TestPutsBackWhatWasTaken(t *testing.T) {
	vip := netip.MustParseAddr("172.30.0.1")
	for _, c := range []struct {
		what string
		take func(*fake)
		want []string // requests
	}{
		{"an address", func(f *fake) {
			delete(f.ours, vip)
			f.changes.lost = []netip.Addr{vip}
		}, []string{"bind 172.30.0.1"}},
		{"an entry", func(f *fake) {
			delete(f.sets["PM-CLUSTER-IP"].entries, "172.30.0.1,tcp:80")
		}, []string{`sets: add -exist PM-CLUSTER-IP 172.30.0.1,tcp:80 comment "ns/s1"`}},
		{"a chain's rules", func(f *fake) {
			f.tables[sdk.IPv4][nat(postrouting)] = nil
		}, nil},
		{"all virtual servers", func(f *fake) { clear(f.services) }, nil},
	} {
		t.Run(c.what, func(t *testing.T) {
			l := newLife(t)
			if err := l.full(many(3)); err != nil {
				t.Fatal(err)
			}
			l.role(sdk.Active)
			before := ""
			l.quiet(func() {
				before = l.fake.picture()
				l.fake.counted()
				l.fake.mu.Lock()
				c.take(l.fake)
				l.fake.mu.Unlock()
				l.compareRules()
			})
			eventually.True(t, "it is put back", func() bool { return l.plugin.Report().Repaired == 1 })
			if got := l.fake.counted(); len(got) == 0 || c.want != nil && !slices.Equal(got, c.want) {
				t.Errorf("it was put back by %q", got)
			}
			if after := l.fake.picture(); after != before {
				t.Errorf("there is\n%s\nand was\n%s", after, before)
			}
		})
	}
}

// Rules that seemed to be others than were written, and are not, are read once, and that is no
// repair.
func TestDoubtEnds(t *testing.T) {
	l := newLife(t)
	if err := l.full(many(1)); err != nil {
		t.Fatal(err)
	}
	l.role(sdk.Active)
	rules := l.plugin.session.families[0].rules
	doubt := ""
	l.quiet(func() {
		was := l.fake.tables[sdk.IPv4][nat(postrouting)]
		l.fake.tables[sdk.IPv4][nat(postrouting)] = nil
		l.compareRules()
		doubt = rules.Doubt()
		l.fake.tables[sdk.IPv4][nat(postrouting)] = was
	})
	if doubt == "" {
		t.Fatal("the comparison found nothing")
	}
	eventually.True(t, "nothing is doubted", func() bool {
		l.quiet(func() { doubt = rules.Doubt() })
		return doubt == ""
	})
	if n := l.plugin.Report().Repaired; n != 0 {
		t.Errorf("%d repairs are reported", n)
	}
}

// compareRules has both families compare their rules, as they do when another program has written.
func (l *life) compareRules() {
	for _, f := range l.plugin.session.families {
		f.rules.Compare(l.Context())
	}
}

// Entries that a set has besides those that were written are counted once, after a repair:
// what is added later is noticed, also when an update was written since.
func TestNoticesEachStrangeEntry(t *testing.T) {
	l := newLife(t)
	s := many(3)
	if err := l.full(s); err != nil {
		t.Fatal(err)
	}
	l.role(sdk.Active)
	entries := func() map[string]string { return l.fake.sets["PM-CLUSTER-IP"].entries }
	for i := range 3 {
		strange := netip.AddrPortFrom(netip.AddrFrom4([4]byte{172, 30, 9, byte(i)}), 80)
		l.quiet(func() {
			l.fake.mu.Lock()
			defer l.fake.mu.Unlock()
			entries()[strange.Addr().String()+",tcp:80"] = ""
		})
		s.Services[0].Cluster = append(s.Services[0].Cluster, sdk.Endpoint{Addr: endpoint(0, 3+i)})
		l.sync(sdk.Update{Set: s.Services[:1]})
		eventually.True(t, "a strange entry is removed", func() bool {
			l.fake.mu.Lock()
			defer l.fake.mu.Unlock()
			return len(entries()) == 3
		})
	}
}

// An address of the node of which no event told is found with the next reading, and node
// ports are served there.
func TestFindsAddressesWithoutAnEvent(t *testing.T) {
	l := newLife(t)
	s := many(1)
	if err := l.full(s); err != nil {
		t.Fatal(err)
	}
	l.role(sdk.Active)
	vip, added := s.Services[0].Frontends[0].Addr.Addr(), netip.MustParseAddr("192.0.2.77")
	if !s.Node.TakesNodePorts(added) {
		t.Fatalf("%s takes no node ports", added)
	}
	l.quiet(func() {
		l.fake.mu.Lock()
		defer l.fake.mu.Unlock()
		l.fake.others[added] = true
		delete(l.fake.ours, vip)
		l.fake.changes.lost = []netip.Addr{vip}
	})
	eventually.True(t, "the new address is served", func() bool {
		l.fake.mu.Lock()
		defer l.fake.mu.Unlock()
		return l.fake.services[serviceKey{family: sdk.IPv4, protocol: sdk.TCP, addr: netip.AddrPortFrom(added, 20000)}] != nil
	})
}

// A round of audits, one each ten seconds, looks at everything once.
func TestAuditsLookAtEverything(t *testing.T) {
	all := map[int]bool{1: true, 2: true, 3: true, 4: true, 5: true, 6: true, 7: true}
	var round, seen []int
	for range auditShare {
		seen = append(seen, nextAudits(&round, all)...)
	}
	if slices.Sort(seen); !slices.Equal(seen, []int{1, 2, 3, 4, 5, 6, 7}) {
		t.Errorf("after %d audits it has looked at %v", auditShare, seen)
	}
}

// What another program changes in destinations is found by an audit within 30 s.
func TestAuditsFindChangedDestinations(t *testing.T) {
	l := newLife(t)
	s := marked(20)
	if err := l.full(s); err != nil {
		t.Fatal(err)
	}
	l.role(sdk.Active)
	same := func() (all bool) {
		all = true
		for range auditShare {
			now, err := l.plugin.session.families[0].auditSample(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			all = all && now
		}
		return all
	}
	for _, change := range []func(*fakeService){
		func(s *fakeService) { s.dests[endpoint(200, 1)] = 1 },
		func(s *fakeService) { clear(s.dests) },
		func(s *fakeService) {
			for dest := range s.dests {
				s.dests[dest] = 7
			}
		},
		func(s *fakeService) {
			for dest := range s.dests {
				s.dests[dest] = 0
			}
		},
	} {
		l.quiet(func() {
			if !same() {
				t.Error("an audit found something else than was written, and nothing is")
			}
			for at, s := range l.fake.services {
				if at.mark != 0 {
					before := maps.Clone(s.dests)
					if change(s); same() {
						t.Errorf("%s is %v, was %v, and no audit found it", at, s.dests, before)
					}
					s.dests = before
					break
				}
			}
		})
	}
}
