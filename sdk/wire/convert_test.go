// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pointsman/pointsman/sdk"
	pb "github.com/pointsman/pointsman/sdk/wire/dataplanepb"
)

// travel encodes and decodes u.
func travel(u sdk.Update) (sdk.Update, []sdk.Failure, error) {
	in := &incoming{}
	_, err := sendUpdate("session", u, func(c *pb.UpdateChunk) error {
		wire, err := proto.Marshal(c)
		if err != nil {
			return err
		}
		back := &pb.UpdateChunk{}
		if err := proto.Unmarshal(wire, back); err != nil {
			return err
		}
		return in.add(back)
	})
	return in.update, in.failed, err
}

// TestUpdatesSurvive sends an update in which each field is set.
func TestUpdatesSurvive(t *testing.T) {
	v4, v6 := netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/64")
	svc := bulkService(0, 3)
	svc.Cluster[1].Addr = netip.MustParseAddrPort("10.1.1.1:9999")
	svc.Local = svc.Cluster[:1]
	svc.Serving = []netip.Addr{netip.MustParseAddr("10.9.9.9")}
	svc.Affinity = 3 * time.Hour
	svc.HealthPort = 31000
	svc.Frontends = append(svc.Frontends, sdk.Frontend{Kind: sdk.NodePort, Addr: netip.MustParseAddrPort("0.0.0.0:30080"), Policy: sdk.Local, Sources: []netip.Prefix{v4}})
	node := sdk.Node{
		Name: "n1", Addrs: []netip.Addr{v4.Addr(), v6.Addr()}, NodePorts: []netip.Prefix{v4, v6},
		Pods: sdk.Pods{CIDRs: []netip.Prefix{v6}, Bridge: "br0", InterfacePrefix: "veth"}, MasqueradeAll: true, MasqueradeBit: 31,
		ServiceCIDRs: []netip.Prefix{v4},
		PodCIDRs:     []netip.Prefix{v6, v4},
		Conntrack:    sdk.ConntrackLimits{Max: 9, TCPEstablishedTimeout: 1, TCPCloseWaitTimeout: 2, TCPBeLiberal: true, UDPTimeout: 3, UDPStreamTimeout: 4},
	}
	u := sdk.Update{From: 3, To: 9, Full: true, Node: &node, Set: []sdk.Service{svc, bulkService(9, 3)}, Delete: []sdk.Name{svc.Name}}
	got, failed, err := travel(u)
	if err != nil || len(failed) > 0 {
		t.Fatal(err, failed)
	}
	if !got.Node.Equal(node) {
		t.Errorf("got the node %+v", got.Node)
	}
	got.Node, u.Node = nil, nil
	if g, w := fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", u); g != w {
		t.Errorf("sent\n%s\ngot\n%s", w, g)
	}
}

// TestDecodeRefuses checks that an error names the first field that is wrong.
func TestDecodeRefuses(t *testing.T) {
	frontend := func(f *pb.Frontend) error { return second(decodeService(&pb.Service{Frontends: []*pb.Frontend{f}})) }
	local := func(e *pb.Endpoints) error { return second(decodeService(&pb.Service{Local: e})) }
	node := func(n *pb.Node) error { return (&incoming{}).add(&pb.UpdateChunk{Head: &pb.UpdateHead{Node: n}}) }
	short, ipv4 := [][]byte{{1}}, []byte{1, 2, 3, 4}
	for want, err := range map[string]error{
		"frontend: an address of 3 bytes":             frontend(&pb.Frontend{Addr: []byte{1, 2, 3}}),
		"frontend: a port of 70000":                   frontend(&pb.Frontend{Addr: ipv4, Port: 70000}),
		"sources:  is no range of addresses":          frontend(&pb.Frontend{Addr: ipv4, Sources: [][]byte{{}}}),
		"sources: 01 02 03 04 21 is no range":         frontend(&pb.Frontend{Addr: ipv4, Sources: [][]byte{{1, 2, 3, 4, 33}}}),
		"local: 3 addresses in 10 bytes":              local(&pb.Endpoints{Count: 3, Addrs: make([]byte, 10)}),
		"local: 2147483648 addresses in 0 bytes":      local(&pb.Endpoints{Count: 1 << 31}),
		"local: 0 ports for 2 endpoints":              local(&pb.Endpoints{Count: 2, Addrs: make([]byte, 8)}),
		"local: a port of 1048576":                    local(&pb.Endpoints{Count: 1, Addrs: make([]byte, 4), Ports: []uint32{1 << 20}}),
		"health port: a port of 65536":                second(decodeService(&pb.Service{HealthPort: 1 << 16})),
		"serving: 1 addresses in 5 bytes":             second(decodeService(&pb.Service{Serving: &pb.Addresses{Count: 1, Addrs: make([]byte, 5)}})),
		"endpoint: an address of 0 bytes":             second(decodeAffinityEntry(&pb.AffinityEntry{Client: ipv4})),
		"masquerade bit: 32 is none of 32":            node(&pb.Node{MasqueradeBit: 32}),
		"addresses: an address of 1 bytes":            node(&pb.Node{Addrs: short}),
		"node ports: 01 is no range of addresses":     node(&pb.Node{NodePorts: short}),
		"service ranges: 01 is no range of addresses": node(&pb.Node{ServiceCidrs: short}),
		"pods: 01 is no range of addresses":           node(&pb.Node{Pods: &pb.Pods{Cidrs: short}}),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v; want %q", err, want)
		}
	}
}

func second[V any](_ V, err error) error { return err }
