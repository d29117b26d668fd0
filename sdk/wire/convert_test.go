// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pointsman/pointsman/sdk"
	pb "github.com/pointsman/pointsman/sdk/wire/dataplanepb"
)

// chunksOf is the sizes of what u is sent as.
func chunksOf(t testing.TB, u sdk.Update) []int {
	t.Helper()
	var sizes []int
	if _, err := sendUpdate("session", u, func(c *pb.UpdateChunk) error {
		sizes = append(sizes, proto.Size(c))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return sizes
}

// travel sends u through bytes, as the wire does.
func travel(u sdk.Update) (sdk.Update, []sdk.Failure, error) {
	in := &incoming{}
	last := false
	_, err := sendUpdate("session", u, func(c *pb.UpdateChunk) error {
		wire, err := proto.Marshal(c)
		if err != nil {
			return err
		}
		back := &pb.UpdateChunk{}
		if err := proto.Unmarshal(wire, back); err != nil {
			return err
		}
		last, err = in.add(back)
		return err
	})
	if err == nil && !last {
		err = errors.New("no last chunk")
	}
	return in.update, in.failed, err
}

func TestUpdatesSurvive(t *testing.T) {
	v4, v6 := netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/64")
	svc := bulkService(0, 3)
	svc.Cluster[1].Addr = netip.MustParseAddrPort("10.1.1.1:9999")
	svc.Local = svc.Cluster[:1]
	svc.Serving = []netip.Addr{netip.MustParseAddr("10.9.9.9")}
	svc.Affinity = 3 * time.Hour
	svc.HealthPort = 31000
	svc.Hints = map[string]string{"scheduler": "rr"}
	svc.Frontends = append(svc.Frontends, sdk.Frontend{Kind: sdk.NodePort, Addr: netip.MustParseAddrPort("0.0.0.0:30080"), Policy: sdk.Local, Sources: []netip.Prefix{v4}})
	node := sdk.Node{
		Name: "n1", Addrs: []netip.Addr{v4.Addr(), v6.Addr()}, NodePorts: []netip.Prefix{v4, v6},
		Pods: sdk.Pods{CIDRs: []netip.Prefix{v6}, Bridge: "br0", InterfacePrefix: "veth"}, MasqueradeAll: true, MasqueradeBit: 31,
		ServiceCIDRs: []netip.Prefix{v4},
		Conntrack:    sdk.ConntrackLimits{Max: 9, TCPEstablishedTimeout: 1, TCPCloseWaitTimeout: 2, TCPBeLiberal: true, UDPTimeout: 3, UDPStreamTimeout: 4},
	}
	u := sdk.Update{From: 3, To: 9, Full: true, Node: &node, Set: []sdk.Service{svc, bulkService(9, 3)}, Delete: []sdk.Name{svc.Name}, Keep: []sdk.Name{{Namespace: "a", Service: "b"}}}
	got, failed, err := travel(u)
	if err != nil || len(failed) > 0 {
		t.Fatal(err, failed)
	}
	if g, w := fmt.Sprintf("%+v", flat(got)), fmt.Sprintf("%+v", flat(u)); g != w {
		t.Errorf("sent\n%s\ngot\n%s", w, g)
	}
	if !got.Node.Equal(node) {
		t.Errorf("the node came as %+v", got.Node)
	}
}

func flat(u sdk.Update) sdk.Update {
	u.Node = nil
	return u
}

func TestDecodeRefuses(t *testing.T) {
	tests := []struct {
		name string
		svc  *pb.Service
		want string
	}{
		{"an odd address", &pb.Service{Frontends: []*pb.Frontend{{Addr: []byte{1, 2, 3}}}}, "an address of 3 bytes"},
		{"a big port", &pb.Service{Frontends: []*pb.Frontend{{Addr: []byte{1, 2, 3, 4}, Port: 70000}}}, "a port of 70000"},
		{"a big health port", &pb.Service{HealthPort: 70000}, "health port"},
		{"a range of nothing", &pb.Service{Frontends: []*pb.Frontend{{Addr: []byte{1, 2, 3, 4}, Sources: [][]byte{{}}}}}, "a range of no bytes"},
		{"a long range", &pb.Service{Frontends: []*pb.Frontend{{Addr: []byte{1, 2, 3, 4}, Sources: [][]byte{{1, 2, 3, 4, 33}}}}}, "a range of 33 bits"},
		{"uneven columns", &pb.Service{Cluster: &pb.Endpoints{Count: 3, Addrs: make([]byte, 10)}}, "3 addresses in 10 bytes"},
		{"a huge count", &pb.Service{Local: &pb.Endpoints{Count: 1 << 31}}, "2147483648 addresses in 0 bytes"},
		{"no ports", &pb.Service{Local: &pb.Endpoints{Count: 2, Addrs: make([]byte, 8)}}, "0 ports for 2 endpoints"},
		{"a big endpoint port", &pb.Service{Local: &pb.Endpoints{Count: 1, Addrs: make([]byte, 4), Ports: []uint32{1 << 20}}}, "port 1048576"},
		{"odd serving", &pb.Service{Serving: &pb.Addresses{Count: 1, Addrs: make([]byte, 5)}}, "1 addresses in 5 bytes"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if _, err := decodeService(test.svc); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v; want %q", err, test.want)
			}
		})
	}
}

func TestBadNodesAreRefused(t *testing.T) {
	for _, n := range []*pb.Node{{MasqueradeBit: 32}, {Addrs: [][]byte{{1}}}, {NodePorts: [][]byte{{1}}}, {ServiceCidrs: [][]byte{{1}}}, {Pods: &pb.Pods{Cidrs: [][]byte{{1}}}}} {
		if _, err := (&incoming{}).add(&pb.UpdateChunk{Head: &pb.UpdateHead{Node: n}}); err == nil {
			t.Errorf("%v went in", n)
		}
	}
}

// Whatever a Service is, it arrives as it was, or is set aside by name.
func FuzzServiceSurvives(f *testing.F) {
	f.Add("ns", "web", "http", uint8(1), uint8(1), []byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, int64(5), uint16(80), "k", "v")
	f.Add("ns", "dns", "", uint8(2), uint8(2), []byte("sixteen bytes ab and a little more than that to be sure"), int64(-1), uint16(0), "", "")
	f.Add("\xff", "", "", uint8(99), uint8(0), []byte{}, int64(0), uint16(0), "\xff", "")
	f.Fuzz(func(t *testing.T, ns, service, port string, protocol, family uint8, raw []byte, affinity int64, health uint16, hint, value string) {
		svc := fuzzService(sdk.Family(family), raw)
		svc.Name.Namespace, svc.Name.Service, svc.Name.Port, svc.Name.Protocol = ns, service, port, sdk.Protocol(protocol)
		svc.Affinity, svc.HealthPort = time.Duration(affinity), health
		if hint != "" {
			svc.Hints = map[string]string{hint: value}
		}
		got, failed, err := travel(sdk.Update{Full: true, To: 1, Set: []sdk.Service{svc}})
		if err != nil {
			t.Fatal(err)
		}
		unsound := svc.Check() != nil
		switch {
		case len(got.Set) == 1 && unsound:
			t.Errorf("an unsound Service arrived: %+v: %v", svc, svc.Check())
		case len(got.Set) == 1 && !got.Set[0].Equal(svc):
			t.Errorf("sent\n%+v\ngot\n%+v", svc, got.Set[0])
		case len(got.Set) == 0 && len(failed) == 1 && (failed[0].Name != svc.Name || got.Keep[0] != svc.Name):
			t.Errorf("%s failed, %v kept; want %s", failed[0].Name, got.Keep, svc.Name)
		case len(got.Set) == 0 && !unsound && utf8All(ns, service, port, hint, value):
			t.Errorf("a sound Service did not arrive: %+v: %v", svc, failed)
		}
	})
}

// fuzzService makes addresses of whatever bytes there are.
func fuzzService(family sdk.Family, raw []byte) sdk.Service {
	svc := sdk.Service{Name: sdk.Name{Family: family}}
	width := 4
	if family == sdk.IPv6 {
		width = 16
	}
	for len(raw) > width+3 {
		addr, _ := netip.AddrFromSlice(raw[:width])
		ap := netip.AddrPortFrom(addr, binary.BigEndian.Uint16(raw[width:]))
		what := raw[width+2]
		raw = raw[width+3:]
		ep := sdk.Endpoint{Addr: ap, OnNode: what&8 != 0}
		switch what % 4 {
		case 0:
			svc.Cluster = append(svc.Cluster, ep)
		case 1:
			svc.Local = append(svc.Local, ep)
		case 2:
			svc.Serving = append(svc.Serving, addr)
		case 3:
			frontend := sdk.Frontend{Kind: sdk.Kind(what >> 4), Addr: ap, Policy: sdk.Policy(what >> 2 & 3)}
			if p, err := addr.Prefix(int(what) % (addr.BitLen() + 1)); err == nil {
				frontend.Sources = append(frontend.Sources, p)
			}
			svc.Frontends = append(svc.Frontends, frontend)
		}
	}
	return svc
}

// No bytes from the other end make this one fall over.
func FuzzChunksAreHarmless(f *testing.F) {
	good, err := proto.Marshal(&pb.UpdateChunk{Head: &pb.UpdateHead{Node: &pb.Node{Name: "n"}}, Last: true})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	svc, err := encodeService(&bulk(1, 3).Set[0])
	if err != nil {
		f.Fatal(err)
	}
	some, err := proto.Marshal(&pb.UpdateChunk{Head: &pb.UpdateHead{}, Set: []*pb.Service{svc}, Delete: []*pb.Name{svc.Name}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(some)
	f.Fuzz(func(t *testing.T, raw []byte) {
		chunk := &pb.UpdateChunk{}
		if proto.Unmarshal(raw, chunk) != nil {
			return
		}
		in := &incoming{}
		in.add(chunk)
		for _, svc := range in.update.Set {
			if err := svc.Check(); err != nil {
				t.Errorf("an unsound Service came in: %v", err)
			}
		}
	})
}
