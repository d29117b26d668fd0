// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/test/field"
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
		svc := several(1, 2)[0]
		k.sync(p, sdk.Update{Full: true, To: 1, Node: &sdk.Node{}, Set: []sdk.Service{svc}})
		err := p.Do(k.Context(), func(map[sdk.Name]sdk.Service) error {
			f := p.families[0]
			is := f.Installed()[svc.Name]
			wrong := is // claims a frontend that the kernel does not have
			wrong.frontends = append(slices.Clone(is.frontends), frontend{kind: sdk.ClusterIP, addr: netip.MustParseAddrPort("10.96.200.1:81"), policy: sdk.Cluster})
			more := is
			more.frontends = []frontend{{kind: sdk.ClusterIP, addr: netip.MustParseAddrPort("10.96.200.2:82"), policy: sdk.Cluster}}
			for i, w := range []piece{more, {}} {
				f.Installed()[svc.Name] = wrong
				f.SetDesired(map[sdk.Name]piece{svc.Name: w})
				if _, err := f.Plan().Apply(k.Context()); err == nil {
					k.Error("removing a missing element succeeded")
				}
				if f.kernel.refused != i+1 || f.kernel.removals != i {
					k.Errorf("%d refused writes are counted, and %d of removals; want %d and %d", f.kernel.refused, f.kernel.removals, i+1, i)
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
	g := field.Testbed(t)
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
