// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/nftable"
	"github.com/pointsman/pointsman/plugins/internal/nftnl"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest"
)

// text is an element as a line: its set, its key, and what it has there.
func text(e nftable.Element, f ip) string {
	line := fmt.Sprintf("%s %x", e.Set, e.Key)
	if e.KeyEnd != "" {
		line += fmt.Sprintf("-%x", e.KeyEnd[len(e.KeyEnd)-f.Addr().Len:])
	}
	if len(e.Data) == 4 {
		line += fmt.Sprintf(" : %d", numberIn(e.Data))
	} else if e.Data != "" {
		line += " : " + f.ReadDestination(e.Data).String()
	}
	if e.Comment != "" {
		line += " # " + e.Comment
	}
	return line
}

// A Service with more endpoints than one call writes in good time is refused, with what to do.
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

// A ClusterIP and a load balancer's address under the Local policy, with one endpoint here and
// two elsewhere.
func TestElements(t *testing.T) {
	s, err := sdktest.Parse("test", []byte(`A Service.
-- services --
ns1/web:http tcp
  cluster-ip    172.30.0.41:80
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
	for _, e := range w.Elements(s.Services[0].Name) {
		lines = append(lines, text(e, ipOf(sdk.IPv4)))
	}
	const golden = `
frontends ac1e00290600000000500000 # ns1/web:http cluster-ip
vips ac1e0029
of-4 ac1e00290600000000500000
endpoints ac1e0029060000000050000000000000 : 10.180.0.1:8080
endpoints ac1e0029060000000050000001000000 : 10.180.1.1:8080
endpoints ac1e0029060000000050000002000000 : 10.180.1.2:8080
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

// TestElementsAllocations: an element costs little more than the string that is its key, since a
// first load has hundreds of thousands, and room is made once for all of a Service's.
func TestElementsAllocations(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 100 {
		svc := randomService(random, i)
		w, err := want(svc)
		if err != nil {
			t.Fatal(err)
		}
		all := w.Elements(svc.Name)
		if allocations := int(testing.AllocsPerRun(10, func() { w.Elements(svc.Name) })); allocations > 2*len(all)+8 {
			t.Errorf("%d elements took %d allocations: %+v", len(all), allocations, svc)
		}
		if affine := w.affinity > 0; !affine && cap(all) > w.size() {
			t.Errorf("there was room for %d elements, and %d came: %+v", w.size(), len(all), svc)
		}
	}
}

// randomService is one with a few frontends and endpoints of all kinds.
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

// From any wanted to any other: what differs leads there, no two elements are in one place, few
// change, and from the elements alone the same can be told again.
func TestRandomWalk(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	have := make(map[sdk.Name]wanted)
	kernel := make(map[nftable.Place]nftable.Element)
	var numbers family
	for step := range 3000 {
		svc := randomService(random, random.IntN(5))
		desired, err := want(svc)
		if err != nil {
			t.Fatal(err)
		}
		if random.IntN(5) == 0 {
			desired = wanted{}
		}
		c := changeOf(svc.Name, have[svc.Name], desired, numbers.free)
		for _, e := range c.Gone {
			if _, there := kernel[e.Place()]; !there {
				t.Fatalf("step %d: %s is not there, and goes", step, text(e, ipOf(sdk.IPv4)))
			}
			if (ip{}).Use(e.Set) != nftable.OfMany {
				delete(kernel, e.Place())
			}
		}
		for _, e := range c.Come {
			if was, there := kernel[e.Place()]; there && (ip{}).Use(e.Set) != nftable.OfMany {
				t.Fatalf("step %d: %s comes where %s is", step, text(e, ipOf(sdk.IPv4)), text(was, ipOf(sdk.IPv4)))
			}
			kernel[e.Place()] = e
		}
		have[svc.Name] = c.To
		if len(c.To.frontends) == 0 {
			delete(have, svc.Name)
		}
		if again := changeOf(svc.Name, c.To, desired, numbers.free); !again.Empty() {
			t.Fatalf("step %d: after a change there is another: %+v", step, again)
		}
		if step%50 == 0 {
			readsBack(t, step, kernel, have)
		}
	}
}

// readsBack tells from elements what they serve, and compares.
func readsBack(t *testing.T, step int, kernel map[nftable.Place]nftable.Element, have map[sdk.Name]wanted) {
	t.Helper()
	d := dump{ipOf(sdk.IPv4), make(nftable.Dump)}
	expected := make(map[nftable.Place]nftable.Element)
	for name, w := range have {
		for _, e := range w.Elements(name) {
			expected[e.Place()] = e
		}
	}
	for at, e := range expected {
		if kernel[at] != e {
			t.Fatalf("step %d: %s is %s", step, text(e, d.ip), text(kernel[at], d.ip))
		}
		if d.Dump[e.Set] == nil {
			d.Dump[e.Set] = make(map[string]nftnl.Element)
		}
		d.Dump[e.Set][e.Key+e.KeyEnd] = e.Element
	}
	seen := d.services()
	if got, want := slices.Sorted(maps.Keys(names(seen))), slices.Sorted(maps.Keys(names(have))); !reflect.DeepEqual(got, want) {
		t.Fatalf("step %d: Services are %v, and should be %v", step, got, want)
	}
	for name, w := range seen {
		if c := changeOf(name, w, have[name], nil); !c.Empty() {
			t.Fatalf("step %d: %s is read as\n%+v\nand is\n%+v: %+v", step, name, w, have[name], c)
		}
	}
}

func names(all map[sdk.Name]wanted) map[string]bool {
	set := make(map[string]bool)
	for name := range all {
		set[name.String()] = true
	}
	return set
}

// One endpoint more or less changes a slot or two, and at a power of two the class.
func TestFewElementsChange(t *testing.T) {
	service := several(1, 1000)[0]
	before, _ := want(service)
	for _, gone := range []int{0, 500, 999} {
		svc := service
		svc.Cluster = slices.Delete(slices.Clone(svc.Cluster), gone, gone+1)
		less, _ := want(svc)
		c := changeOf(svc.Name, before, less, nil)
		back := changeOf(svc.Name, c.To, before, nil)
		for _, c := range []*nftable.Change[wanted]{c, back} {
			if n := len(c.Gone) + len(c.Come); n > 3 {
				t.Errorf("without endpoint %d of 1000, %d elements change", gone, n)
			}
		}
	}
}

// several are Services with a ClusterIP and so many endpoints.
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

// TestSmall has a Service take two allocations, and the kernel's record of it none: a map of
// its lists was most of the memory of a node with many.
func TestSmall(t *testing.T) {
	svc := sdk.Service{
		Name:      sdk.Name{Namespace: "ns1", Service: "web", Protocol: sdk.TCP, Family: sdk.IPv4},
		Frontends: []sdk.Frontend{{Kind: sdk.ClusterIP, Addr: netip.MustParseAddrPort("10.96.0.1:80"), Policy: sdk.Cluster}},
		Cluster:   []sdk.Endpoint{{Addr: netip.MustParseAddrPort("10.1.0.1:80")}, {Addr: netip.MustParseAddrPort("10.1.0.2:80")}},
	}
	var w wanted
	allocations := testing.AllocsPerRun(100, func() {
		desired, err := want(svc)
		if err != nil {
			t.Fatal(err)
		}
		w = desired.arranged(wanted{}, nil)
	})
	if allocations > 3 || len(w.lists[sdk.Cluster]) != 2 { // the third is its label, which is measured
		t.Errorf("it takes %v allocations: %+v", allocations, w)
	}
}

// changeOf is what leads from one wanted of a Service to another.
func changeOf(name sdk.Name, have, desired wanted, free func() number) *nftable.Change[wanted] {
	to := desired.arranged(have, free)
	return &nftable.Change[wanted]{Name: name, To: to, Difference: nftable.Diff(have.Elements(name), to.Elements(name))}
}
