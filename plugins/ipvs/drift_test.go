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

// The dataplane restores what another process removes, and writes nothing else.
func TestRestoresWhatOthersRemove(t *testing.T) {
	vip := netip.MustParseAddr("172.30.0.1")
	for _, c := range []struct {
		what string
		take func(*fake)
		want []string // the requests that restore it
	}{
		{"an address", func(f *fake) {
			delete(f.ours, vip)
			f.changes.lost = []netip.Addr{vip}
		}, []string{"bind 172.30.0.1"}},
		{"an entry", func(f *fake) {
			delete(f.sets["PM-CLUSTER-IP"].entries, "172.30.0.1,tcp:80")
		}, []string{`sets: add -exist PM-CLUSTER-IP 172.30.0.1,tcp:80 comment "ns/s1"`}},
		{"the only entry that names a virtual server", func(f *fake) {
			delete(f.sets["PM-NODE-PORT-TCP"].entries, "20001")
		}, nil},
		{"a chain's rules", func(f *fake) {
			f.tables[sdk.IPv4][nat(postrouting)] = nil
		}, nil},
		{"all virtual servers", func(f *fake) { clear(f.services) }, nil},
	} {
		t.Run(c.what, func(t *testing.T) {
			l := start(t, many(3))
			before := ""
			l.exclusively(func() {
				before = l.fake.snapshot()
				l.fake.counted()
				l.fake.mu.Lock()
				c.take(l.fake)
				l.fake.mu.Unlock()
				l.compareRules()
			})
			eventually.True(t, "one repair is reported", func() bool { return l.plugin.Report().Repaired == 1 })
			if got := l.fake.counted(); len(got) == 0 || c.want != nil && !slices.Equal(got, c.want) {
				t.Errorf("the repair sent the requests %q", got)
			}
			if after := l.fake.snapshot(); after != before {
				t.Errorf("after the repair the kernel has\n%s\nand had before\n%s", after, before)
			}
			l.exclusively(func() {
				if why, _ := l.plugin.session.families[0].objects.Foreign(t.Context()); why != "" {
					t.Errorf("after the repair a probe finds that %s", why)
				}
			})
		})
	}
}

// A suspected difference in the rules leads to one read of the tables. If the rules are unchanged, the suspicion ends
// and no repair is counted.
func TestSuspicionEndsWithoutRepair(t *testing.T) {
	l := start(t, many(1))
	rules := l.plugin.session.families[0].rules
	doubt := ""
	l.exclusively(func() {
		was := l.fake.tables[sdk.IPv4][nat(postrouting)]
		l.fake.tables[sdk.IPv4][nat(postrouting)] = nil
		l.compareRules()
		doubt = rules.Doubt()
		l.fake.tables[sdk.IPv4][nat(postrouting)] = was
	})
	if doubt == "" {
		t.Fatal("Compare found no difference")
	}
	eventually.True(t, "no difference is suspected any more", func() bool {
		l.exclusively(func() { doubt = rules.Doubt() })
		return doubt == ""
	})
	if n := l.plugin.Report().Repaired; n != 0 {
		t.Errorf("%d repairs are reported", n)
	}
}

// compareRules makes both families compare their rules with the kernel, as they do after another program has written.
func (l *instance) compareRules() {
	for _, f := range l.plugin.session.families {
		f.rules.Compare(l.Context())
	}
}

// Entries that another program adds to a set are removed. The member count is updated after each repair, so an entry
// that is added later is detected, also if an update was written in between.
func TestRemovesForeignEntries(t *testing.T) {
	s := many(3)
	l := start(t, s)
	entries := func() map[string]string { return l.fake.sets["PM-CLUSTER-IP"].entries }
	for i := range 3 {
		strange := netip.AddrPortFrom(netip.AddrFrom4([4]byte{172, 30, 9, byte(i)}), 80)
		l.exclusively(func() {
			l.fake.mu.Lock()
			defer l.fake.mu.Unlock()
			entries()[strange.Addr().String()+",tcp:80"] = ""
		})
		s.Services[0].Cluster = append(s.Services[0].Cluster, sdk.Endpoint{Addr: endpoint(0, 3+i)})
		l.sync(sdk.Update{Set: s.Services[:1]})
		eventually.True(t, "the foreign entry is removed", func() bool {
			l.fake.mu.Lock()
			defer l.fake.mu.Unlock()
			return len(entries()) == 3
		})
	}
}

// A new address of the node for which no event arrived is found by the next listing, and node ports are served there.
func TestFindsAddressesWithoutAnEvent(t *testing.T) {
	s := many(1)
	l := start(t, s)
	vip, added := s.Services[0].Frontends[0].Addr.Addr(), netip.MustParseAddr("192.0.2.77")
	if !s.Node.TakesNodePorts(added) {
		t.Fatalf("%s takes no node ports", added)
	}
	l.exclusively(func() {
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

// An audit finds destinations and set members that another program has changed.
func TestAuditsFindChanges(t *testing.T) {
	s := needMarks(20)
	l := start(t, s)
	same := func() bool {
		now, err := l.plugin.session.families[0].audit(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return now
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
		l.exclusively(func() {
			if !same() {
				t.Error("an audit found a difference although nothing was changed")
			}
			for at, s := range l.fake.services {
				if at.mark != 0 {
					before := maps.Clone(s.dests)
					if change(s); same() {
						t.Errorf("no audit found that the destinations of %s are %v and not %v", at, s.dests, before)
					}
					s.dests = before
					break
				}
			}
		})
	}
	members := l.fake.sets["PM-CLUSTER-IP"].entries
	for _, strange := range []string{"172.30.0.1,tcp:80", "172.30.9.9,tcp:80"} { // another comment, and another member
		l.exclusively(func() {
			before := maps.Clone(members)
			delete(members, "172.30.0.1,tcp:80")
			if members[strange] = " comment \"ns/other\""; same() {
				t.Errorf("no audit found that the members are %v", members)
			}
			clear(members)
			maps.Copy(members, before)
		})
	}
	if !same() {
		t.Error("an audit found a difference although nothing was changed")
	}
}
