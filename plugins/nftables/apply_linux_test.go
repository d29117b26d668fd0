// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/nftnl"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest"
)

// A Service whose elements the kernel refuses is reported, and all other Services are written.
func TestKernelNamesARefusedService(t *testing.T) {
	onKernel(t, func(k kernel) {
		p := k.start()
		all := several(2500, 2)
		k.sync(p, sdk.Update{Full: true, To: 1, Node: &sdk.Node{}})
		pieces := make(map[sdk.Name]piece)
		for _, s := range all {
			w, err := want(s)
			if err != nil {
				k.Fatal(err)
			}
			pieces[s.Name] = w
		}
		bad := map[sdk.Name]bool{all[3].Name: true, all[700].Name: true, all[2400].Name: true}
		for name := range bad {
			w := pieces[name]
			w.hairpin = nil
			w.frontends = []frontend{{kind: sdk.ClusterIP, addr: netip.MustParseAddrPort("[2001:db8::1]:80"), policy: sdk.Cluster}}
			pieces[name] = w
		}
		err := p.Do(k.Context(), func(map[sdk.Name]sdk.Service) error {
			f := p.families[0]
			f.SetDesired(pieces)
			failed, err := f.Plan().Apply(k.Context())
			if err != nil || len(failed) != len(bad) {
				k.Errorf("failed: %v, %v", failed, err)
			}
			for _, one := range failed {
				if !bad[one.Name] || !strings.Contains(one.Err.Error(), "invalid argument") {
					k.Errorf("%s failed: %v", one.Name, one.Err)
				}
			}
			if n := len(f.Installed()); n != len(all)-len(bad) {
				k.Errorf("%d Services are served", n)
			}
			return nil
		})
		if err != nil {
			k.Fatal(err)
		}
	})
}

// Refused writes are counted. Refused writes that only remove elements are counted apart, too.
func TestKernelCountsRefusedWrites(t *testing.T) {
	onKernel(t, func(k kernel) {
		p := k.start()
		all := several(2, 2)
		k.sync(p, sdk.Update{Full: true, To: 1, Node: &sdk.Node{}, Set: all})
		absent := frontend{kind: sdk.ClusterIP, addr: netip.MustParseAddrPort("10.96.200.1:81"), policy: sdk.Cluster}
		err := p.Do(k.Context(), func(map[sdk.Name]sdk.Service) error {
			f := p.families[0]
			for i, w := range []piece{f.Installed()[all[0].Name], {}} {
				is := f.Installed()[all[i].Name]
				was := is
				was.frontends = append(slices.Clone(was.frontends), absent)
				f.Installed()[all[i].Name] = was
				if i == 0 { // this piece also has an element to add
					w.frontends = []frontend{{kind: sdk.ClusterIP, addr: netip.MustParseAddrPort("10.96.200.2:82"), policy: sdk.Cluster}}
				}
				f.SetDesired(map[sdk.Name]piece{all[i].Name: w})
				if _, err := f.Plan().Apply(k.Context()); err == nil {
					k.Error("removing a missing element succeeded")
				}
				var told sdk.Report
				f.Tell(&told)
				for _, sample := range told.Samples {
					want := map[string]int{failures + "sync_failures_total": i + 1, failures + "cleanup_failures_total": i}
					if n, counts := want[sample.Name]; counts && int(sample.Value) != n {
						k.Errorf("%s is %g, want %d", sample.Name, sample.Value, n)
					}
				}
				f.Installed()[all[i].Name] = is
				f.SetDesired(map[sdk.Name]piece{all[i].Name: is})
				if _, err := f.Plan().Apply(k.Context()); err != nil {
					k.Fatal(err)
				}
			}
			return nil
		})
		if err != nil {
			k.Fatal(err)
		}
	})
}

// A table with another layout is replaced, and serves the same Services and role: if a set has other keys, if a map has
// other data, and if packets have added clients to a map of another layout.
func TestKernelReplacesAnotherLayout(t *testing.T) {
	g := world(t)
	onKernel(t, func(k kernel) {
		for _, other := range []string{
			"add set ip pointsman frontends { type ipv4_addr; }; add chain ip pointsman nat-prerouting { type nat hook prerouting priority -100; }; add rule ip pointsman nat-prerouting ip daddr @frontends drop",
			"add map ip pointsman keeps { type ipv4_addr . inet_proto . inet_service : verdict; }; add chain ip pointsman nat-prerouting { type nat hook prerouting priority -100; }",
			"add map ip pointsman sticky { type ipv4_addr : ipv4_addr . inet_service; flags dynamic,timeout; timeout 1h; }; add element ip pointsman sticky { 192.0.2.1 : 10.180.0.1 . 8080 }; add chain ip pointsman nat-prerouting { type nat hook prerouting priority -100; }",
		} {
			k.nft("add table ip pointsman; " + other)
			s := k.place(g, sticking)
			p := k.start()
			k.sync(p, s.Update(1)) // in the role that the table shows
			stage, err := g.Open(k.Context(), p, s)
			if err != nil {
				k.Fatal(err)
			}
			for _, packet := range s.Packets {
				if a, err := stage.Send(k.Context(), packet); err != nil || a.Verdict != sdk.Forward {
					k.Errorf("%s: %s, %v", packet.Text, a, err)
				}
			}
			stage.Close()
			if _, err := p.Cleanup(k.Context(), sdk.Leftovers{}); err != nil {
				k.Fatal(err)
			}
			p.die()
		}
	})
}

// The sets and chains for affinity are created with the first Service that needs them. After the last one is gone, the
// next process removes them. They are read back as they were written.
func TestKernelAffinityOnAndOff(t *testing.T) {
	g := world(t)
	onKernel(t, func(k kernel) {
		s := k.place(g, sticking)
		s.Services[0].Affinity = 0
		p, _ := k.active(g, s)
		conn, err := nftnl.Dial() // the plugin uses its own socket at the same time
		if err != nil {
			k.Fatal(err)
		}
		defer conn.Close()
		none, revision := k.text(), uint64(1)
		local := s.Services[0]
		local.Frontends = append([]sdk.Frontend(nil), local.Frontends...)
		for i := range local.Frontends {
			if local.Frontends[i].External() {
				local.Frontends[i].Policy = sdk.Local
			}
		}
		local.Local = local.Cluster[:1]
		for _, svc := range []sdk.Service{affine(s, 3*time.Hour), affine(s, time.Minute), with(local, time.Minute), with(local, 0), with(local, time.Hour), affine(s, time.Hour), affine(s, 0)} {
			k.sync(p, sdk.Update{From: revision, To: revision + 1, Set: []sdk.Service{svc}})
			revision++
			f := p.families[0]
			seen, err := f.kernel.read(k.Context(), conn)
			if err != nil {
				k.Fatal(err)
			}
			expected, elements := maps.Clone(f.kernel.fixed), 0
			for name, w := range f.Installed() {
				f.Entries(name, w, func(key entryKey, v entryValue) { expected[key] = v })
			}
			for key := range seen.entries {
				if key.kind == ofElement {
					elements++
				}
				if key.name == "own" {
					delete(seen.entries, key)
					delete(expected, key)
				}
			}
			if !maps.Equal(seen.entries, expected) {
				k.Errorf("%s: the table has\n%v\nwant\n%v", svc.Affinity, seen.entries, expected)
			}
			if f.kernel.total() != elements {
				k.Errorf("%s: total returned %d elements, and the kernel has %d", svc.Affinity, f.kernel.total(), elements)
			}
			k.checkListing()
		}
		p.die()
		p = k.start() // a process that reads the table removes what no Service needs
		k.sync(p, sdk.Update{Full: true, To: 1, Node: &s.Node, Set: []sdk.Service{affine(s, 0)}})
		if now := k.text(); now != none {
			k.Errorf("after affinity was turned off, the table is\n%s\nand was\n%s", now, none)
		}
	})
}

func affine(s sdktest.Scenario, affinity time.Duration) sdk.Service {
	return with(s.Services[0], affinity)
}

func with(s sdk.Service, affinity time.Duration) sdk.Service {
	s.Affinity = affinity
	return s
}
