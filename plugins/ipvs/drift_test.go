// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"context"
	"net/netip"
	"slices"
	"testing"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/sdk"
)

// What somebody takes away is put back, and nothing else is written; what the kernel
// tells of itself needs no look at the rest.
func TestPutsBackWhatWasTaken(t *testing.T) {
	vip := netip.MustParseAddr("172.30.0.1")
	for _, c := range []struct {
		what string
		take func(*fake)
		look func(*plugin, context.Context) error
		want []string // requests
		most int      // reads
	}{
		{"an address", func(f *fake) {
			delete(f.ours, vip)
			f.heard.lost = []netip.Addr{vip}
		}, (*plugin).heed, []string{"bind 172.30.0.1"}, 1},
		{"an entry", func(f *fake) {
			delete(f.sets["KUBE-CLUSTER-IP"].entries, "172.30.0.1,tcp:80")
		}, (*plugin).probeAll, []string{`sets: add -exist KUBE-CLUSTER-IP 172.30.0.1,tcp:80 comment "ns/s1"`}, 100},
		{"a chain's rules", func(f *fake) {
			f.tables[sdk.IPv4][iptables.ID{Table: "nat", Chain: "POSTROUTING"}] = nil
		}, (*plugin).probeAll, nil, 6},
		{"all virtual servers", func(f *fake) { clear(f.servers) }, (*plugin).probeAll, nil, 100},
	} {
		t.Run(c.what, func(t *testing.T) {
			l := newLife(t)
			if err := l.full(many(3)); err != nil {
				t.Fatal(err)
			}
			l.role(sdk.Active)
			if err := l.plugin.turn.Take(t.Context()); err != nil { // the watch has to wait
				t.Fatal(err)
			}
			defer l.plugin.turn.Give()
			before := l.fake.picture()
			l.fake.counted()
			l.fake.mu.Lock()
			c.take(l.fake)
			reads := l.fake.reads
			l.fake.mu.Unlock()
			if err := c.look(l.plugin, t.Context()); err != nil {
				t.Fatal(err)
			}
			if reads = l.fake.reads - reads; reads > c.most {
				t.Errorf("the kernel was read %d times", reads)
			}
			if got := l.fake.counted(); len(got) == 0 || c.want != nil && !slices.Equal(got, c.want) {
				t.Errorf("it was put back by %q", got)
			}
			if after := l.fake.picture(); after != before {
				t.Errorf("there is\n%s\nand was\n%s", after, before)
			}
			if l.plugin.Report().Repaired != 1 {
				t.Errorf("it reports %d repairs", l.plugin.Report().Repaired)
			}
		})
	}
}

// What another process cleaned up is not put back by the writer, which lets it write; and
// is, once a host says again that the writer is to serve.
func TestStandsDownWhenAnotherCleansUp(t *testing.T) {
	l := newLife(t)
	if err := l.full(many(3)); err != nil {
		t.Fatal(err)
	}
	l.role(sdk.Active)
	if err := l.plugin.turn.Take(t.Context()); err != nil { // the watch has to wait
		t.Fatal(err)
	}
	before := l.fake.picture()
	other := newPlugin(l.plugin.dir, l.fake.edges())
	if _, err := other.Cleanup(t.Context(), sdk.Leftovers{}); err != nil {
		t.Fatal(err)
	}
	clean := l.fake.picture()
	if err := l.plugin.probeAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	if after := l.fake.picture(); after != clean || l.plugin.lock != nil || l.plugin.Report().Repaired != 0 {
		t.Errorf("cleaned up by another, it wrote, or would:\n%s", after)
	}
	l.plugin.turn.Give()
	l.role(sdk.Active)
	if after := l.fake.picture(); after != before {
		t.Errorf("to serve again, there is\n%s\nand was\n%s", after, before)
	}
}
