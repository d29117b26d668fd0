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
		PodCIDRs:     []netip.Prefix{v6, v4},
		Conntrack:    sdk.ConntrackLimits{Max: 9, TCPEstablishedTimeout: 1, TCPCloseWaitTimeout: 2, TCPBeLiberal: true, UDPTimeout: 3, UDPStreamTimeout: 4},
	}
	u := sdk.Update{From: 3, To: 9, Full: true, Node: &node, Set: []sdk.Service{svc, bulkService(9, 3)}, Delete: []sdk.Name{svc.Name}}
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
		{"a range of nothing", &pb.Service{Frontends: []*pb.Frontend{{Addr: []byte{1, 2, 3, 4}, Sources: [][]byte{{}}}}}, "is no range of addresses"},
		{"a long range", &pb.Service{Frontends: []*pb.Frontend{{Addr: []byte{1, 2, 3, 4}, Sources: [][]byte{{1, 2, 3, 4, 33}}}}}, "is no range of addresses"},
		{"uneven columns", &pb.Service{Cluster: &pb.Endpoints{Count: 3, Addrs: make([]byte, 10)}}, "3 addresses in 10 bytes"},
		{"a huge count", &pb.Service{Local: &pb.Endpoints{Count: 1 << 31}}, "2147483648 addresses in 0 bytes"},
		{"no ports", &pb.Service{Local: &pb.Endpoints{Count: 2, Addrs: make([]byte, 8)}}, "0 ports for 2 endpoints"},
		{"a big endpoint port", &pb.Service{Local: &pb.Endpoints{Count: 1, Addrs: make([]byte, 4), Ports: []uint32{1 << 20}}}, "a port of 1048576"},
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
		if err := (&incoming{}).add(&pb.UpdateChunk{Head: &pb.UpdateHead{Node: n}}); err == nil {
			t.Errorf("%v went in", n)
		}
	}
}
