// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/nftnl"
	"github.com/pointsman/pointsman/plugins/internal/reconcile"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest"
)

// text returns an element as a line: its set, key, data and comment.
func text(set string, e nftnl.Element, f ip) string {
	line := fmt.Sprintf("%s %x", set, e.Key)
	if e.KeyEnd != "" {
		line += fmt.Sprintf("-%x", e.KeyEnd[len(e.KeyEnd)-f.Addr().Len:])
	}
	if len(e.Data) == 4 {
		line += fmt.Sprintf(" : %d", parseNumber(e.Data))
	} else if e.Data != "" {
		line += " : " + f.ReadDestination(e.Data).String()
	}
	if e.Comment != "" {
		line += " # " + e.Comment
	}
	return line
}

// A Service with too many endpoints is refused with a hint, because one call could not write them in reasonable time.
func TestTooManyEndpointsAreRefused(t *testing.T) {
	svc := sdk.Service{
		Name:      sdk.Name{Namespace: "ns1", Service: "web", Protocol: sdk.TCP, Family: sdk.IPv4},
		Frontends: []sdk.Frontend{{Kind: sdk.ClusterIP, Addr: netip.MustParseAddrPort("172.30.0.41:80"), Policy: sdk.Cluster}},
	}
	for i := range Ceiling + 1 {
		svc.Cluster = append(svc.Cluster, sdk.Endpoint{Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{11, byte(i >> 16), byte(i >> 8), byte(i)}), 8080)})
	}
	_, err := want(svc)
	if refusal, ok := errors.AsType[*sdk.Refusal](err); !ok || refusal.Field == "" || refusal.Why == "" || refusal.Try == "" {
		t.Errorf("with %d endpoints: %v", len(svc.Cluster), err)
	}
	svc.Cluster = svc.Cluster[1:]
	if _, err := want(svc); err != nil {
		t.Errorf("with %d endpoints: %v", len(svc.Cluster), err)
	}
}

// TestElements shows the elements of a ClusterIP, an external IP and a Local load balancer address, with one endpoint on
// this node and two on others.
func TestElements(t *testing.T) {
	s, err := sdktest.Parse("test", []byte(`A Service.
-- services --
ns1/web:http tcp
  cluster-ip    172.30.0.41:80
  external-ip   198.51.100.9:80
  load-balancer 198.51.100.1:80 local from 192.0.2.0/24 192.0.3.0/24 192.0.2.128/25
  endpoint      10.180.0.1:8080 here
  endpoint      10.180.1.1:8080
  endpoint      10.180.1.2:8080
-- packets --
10.180.0.9 > 172.30.0.41:80 = 10.180.0.1:8080 10.180.1.1:8080 10.180.1.2:8080
`))
	if err != nil {
		t.Fatal(err)
	}
	w, err := want(s.Services[0])
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	w.elements(s.Services[0].Name, func(set string, e nftnl.Element) { lines = append(lines, text(set, e, ipOf(sdk.IPv4))) })
	const golden = `
frontends ac1e00290600000000500000 # ns1/web:http cluster-ip
vips ac1e0029
of-4 ac1e00290600000000500000
endpoints ac1e0029060000000050000000000000 : 10.180.0.1:8080
endpoints ac1e0029060000000050000001000000 : 10.180.1.1:8080
endpoints ac1e0029060000000050000002000000 : 10.180.1.2:8080
frontends c63364090600000000500000 # ns1/web:http external-ip
external c6336409
of-4 c63364090600000000500000
endpoints c6336409060000000050000000000000 : 10.180.0.1:8080
endpoints c6336409060000000050000001000000 : 10.180.1.1:8080
endpoints c6336409060000000050000002000000 : 10.180.1.2:8080
outside c63364090600000000500000
frontends c63364010600000000500000 # ns1/web:http load-balancer local
allowed c63364010600000000500000c0000200-c00003ff
gated c63364010600000000500000
external c6336401
of-1 c63364010600000000500000
endpoints c6336401060000000050000000000000 : 10.180.0.1:8080
outside-local c63364010600000000500000
near-frontends c63364010600000000500000
near-of-4 c63364010600000000500000
near-endpoints c6336401060000000050000000000000 : 10.180.0.1:8080
near-endpoints c6336401060000000050000001000000 : 10.180.1.1:8080
near-endpoints c6336401060000000050000002000000 : 10.180.1.2:8080
hairpin 0ab400010ab40001
hairpin 0ab401010ab40101
hairpin 0ab401020ab40102
`
	if got := "\n" + strings.Join(lines, "\n") + "\n"; got != golden {
		t.Errorf("elements are%s", got)
	}
}

// TestElementsAllocations checks that an element takes little more memory than its key, because a first load has
// hundreds of thousands, and that the list of a Service's elements is allocated once.
func TestElementsAllocations(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 100 {
		svc := randomService(random, i)
		w, err := want(svc)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		w.elements(svc.Name, func(string, nftnl.Element) { n++ })
		if allocations := int(testing.AllocsPerRun(10, func() { w.elements(svc.Name, func(string, nftnl.Element) {}) })); allocations > 2*n+8 {
			t.Errorf("%d elements took %d allocations: %+v", n, allocations, svc)
		}
	}
}

// randomService returns a Service with a few random frontends and endpoints.
func randomService(random *rand.Rand, i int) sdk.Service {
	s := sdk.Service{Name: sdk.Name{Namespace: "ns", Service: fmt.Sprintf("s%d", i), Protocol: sdk.TCP, Family: sdk.IPv4}}
	addr := func(third, fourth int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, byte(third), byte(fourth)}) }
	for j := range 1 + random.IntN(3) {
		f := sdk.Frontend{Kind: sdk.Kind(1 + random.IntN(4)), Policy: sdk.Policy(1 + random.IntN(2)), Addr: netip.AddrPortFrom(addr(i, j), 80)}
		if f.Kind == sdk.NodePort {
			f.Addr = netip.AddrPortFrom(netip.IPv4Unspecified(), uint16(30000+10*i+j))
		}
		for range random.IntN(3) {
			p, _ := addr(random.IntN(4), random.IntN(256)).Prefix(random.IntN(33))
			f.Sources = append(f.Sources, p)
		}
		s.Frontends = append(s.Frontends, f)
	}
	for j := range random.IntN(9) {
		ep := sdk.Endpoint{Addr: netip.AddrPortFrom(addr(100+2*i+random.IntN(2), j), 8080), OnNode: random.IntN(3) == 0}
		s.Cluster = append(s.Cluster, ep)
		if ep.OnNode {
			s.Local = append(s.Local, ep)
		}
	}
	s.Affinity = time.Duration(random.IntN(3)) * time.Hour
	s.Normalize()
	return s
}

// TestParse checks that Parse returns the Services of a table from its elements alone, with the slots and numbers
// that they have after many changes, and that applying the same Service again changes nothing.
func TestParse(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	f, have := ipOf(sdk.IPv4), make(map[sdk.Name]piece)
	var numbers family
	for step := range 3000 {
		svc := randomService(random, random.IntN(5))
		desired, err := want(svc)
		if err != nil {
			t.Fatal(err)
		}
		to := desired.withSlotsOf(have[svc.Name], numbers.nextNumber)
		if again := desired.withSlotsOf(to, numbers.nextNumber); !again.Equal(to) {
			t.Fatalf("step %d: withSlotsOf is not idempotent: %+v gives %+v", step, to, again)
		}
		have[svc.Name] = to
		if random.IntN(5) == 0 {
			delete(have, svc.Name)
		}
		if step%50 != 0 {
			continue
		}
		entries := make(map[entryKey]entryValue)
		for name, w := range have {
			f.Entries(name, w, func(k entryKey, v entryValue) {
				if _, twice := entries[k]; twice && !f.Kind(k).Counted {
					t.Fatalf("step %d: two entries have key %+v", step, k)
				}
				entries[k] = v
			})
		}
		seen, _ := f.Parse(entries)
		if len(seen) != len(have) {
			t.Fatalf("step %d: Services are %v, want %v", step, seen, have)
		}
		for name, w := range seen {
			if c := changesOf(f, name, w, have[name]); len(c) > 0 {
				t.Fatalf("step %d: %s is parsed as\n%+v\nwant\n%+v: %+v", step, name, w, have[name], c)
			}
		}
	}
}

// Adding or removing one endpoint changes one or two slots, and at a power of two also the class.
func TestFewElementsChange(t *testing.T) {
	service := several(1, 1000)[0]
	before, _ := want(service)
	for _, gone := range []int{0, 500, 999} {
		svc := service
		svc.Cluster = slices.Delete(slices.Clone(svc.Cluster), gone, gone+1)
		less, _ := want(svc)
		less = less.withSlotsOf(before, nil)
		back := before.withSlotsOf(less, nil)
		for _, c := range [][]change{changesOf(ip{}, svc.Name, before, less), changesOf(ip{}, svc.Name, less, back)} {
			if len(c) > 3 {
				t.Errorf("without endpoint %d of 1000, %d elements change", gone, len(c))
			}
		}
	}
}

// several returns Services that each have a ClusterIP and the given number of endpoints.
func several(services, endpoints int) []sdk.Service {
	addr := func(base, i int) netip.Addr {
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], uint32(base+i))
		return netip.AddrFrom4(b)
	}
	all := make([]sdk.Service, services)
	for i := range all {
		s := sdk.Service{
			Name:      sdk.Name{Namespace: "ns" + strconv.Itoa(i%50), Service: fmt.Sprintf("service-%d", i), Port: "http", Protocol: sdk.TCP, Family: sdk.IPv4},
			Frontends: []sdk.Frontend{{Kind: sdk.ClusterIP, Addr: netip.AddrPortFrom(addr(10<<24|96<<16, i), 80), Policy: sdk.Cluster}},
		}
		for j := range endpoints {
			s.Cluster = append(s.Cluster, sdk.Endpoint{Addr: netip.AddrPortFrom(addr(10<<24|128<<16, i*endpoints+j), 8080)})
		}
		s.Normalize()
		all[i] = s
	}
	return all
}

// changesOf returns the changes that turn the elements of one piece into those of another, without the counted
// elements.
func changesOf(f ip, name sdk.Name, from, to piece) (all []change) {
	old := make(map[entryKey]entryValue)
	f.Entries(name, from, func(k entryKey, v entryValue) {
		if !f.Kind(k).Counted {
			old[k] = v
		}
	})
	f.Entries(name, to, func(k entryKey, v entryValue) {
		was, there := old[k]
		delete(old, k)
		switch {
		case f.Kind(k).Counted:
		case !there:
			all = append(all, change{Op: reconcile.Add, Key: k, New: v})
		case was != v:
			all = append(all, change{Op: reconcile.Replace, Key: k, Old: was, New: v})
		}
	})
	for k, v := range old {
		all = append(all, change{Op: reconcile.Remove, Key: k, Old: v})
	}
	return all
}
