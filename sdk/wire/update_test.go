// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/pointsman/pointsman/sdk"
	pb "github.com/pointsman/pointsman/sdk/wire/dataplanepb"
)

// TestUpdateOfDoc checks that a host sends the full update that docs/wire.md shows.
func TestUpdateOfDoc(t *testing.T) {
	page, err := os.ReadFile("../../docs/wire.md")
	if err != nil {
		t.Fatal(err)
	}
	const begin = `{"head": {"session": "s1", "to": "1", "full": true},`
	_, text, _ := strings.Cut(string(page), begin)
	text, _, _ = strings.Cut(text, "```")
	want := &pb.UpdateChunk{}
	if err := protojson.Unmarshal([]byte(begin+text), want); err != nil {
		t.Fatal(err)
	}
	u := sdk.Update{To: 1, Full: true, Set: []sdk.Service{{
		Name:      sdk.Name{Namespace: "shop", Service: "web", Protocol: sdk.TCP, Family: sdk.IPv4},
		Frontends: []sdk.Frontend{{Kind: sdk.ClusterIP, Addr: netip.MustParseAddrPort("10.96.0.10:80"), Policy: sdk.Cluster}},
		Cluster: []sdk.Endpoint{
			{Addr: netip.MustParseAddrPort("10.244.1.2:8080"), OnNode: true}, {Addr: netip.MustParseAddrPort("10.244.2.3:8080")},
		},
	}}}
	var sent []*pb.UpdateChunk
	if _, err := sendUpdate("s1", u, func(c *pb.UpdateChunk) error {
		sent = append(sent, proto.CloneOf(c))
		return nil
	}); err != nil || len(sent) != 1 || !proto.Equal(sent[0], want) {
		t.Errorf("a host sends %v, and the page has %v: %v", sent, want, err)
	}
}

// TestABadServiceIsRefused checks that a Service that cannot be sent, or that the plugin does not understand, is refused and
// that the others arrive.
func TestABadServiceIsRefused(t *testing.T) {
	bad := []sdk.Service{bulkService(1, 2), bulkService(2, 2), bulkService(3, 300_000), bulkService(4, 2), bulkService(5, 2), bulkService(6, 2), bulkService(7, 2)}
	bad[0].Cluster[1].Addr = netip.MustParseAddrPort("[fe80::1%eth0]:80")
	bad[1].Frontends[0].Addr = netip.AddrPort{}
	bad[3].Name.Protocol = 77
	bad[4].Frontends[0].Kind = 9
	bad[5].Frontends[0].Policy = 250
	bad[6].Cluster[0].Addr = netip.AddrPortFrom(bad[6].Cluster[0].Addr.Addr(), 0)
	large, small := bulkService(8, 150_000), bulkService(9, 1)
	s := &subject{}
	result, err := configured(t, local(t, s), order{}).Sync(soon(t), full(1, append(bad, large, small)...))
	if err != nil || len(result.Failed) != len(bad) {
		t.Fatalf("%d Services were refused, %v; want %d", len(result.Failed), err, len(bad))
	}
	for _, f := range result.Failed {
		refusal, ok := errors.AsType[*sdk.Refusal](f.Err)
		if !ok || refusal.Try == "" || !slices.ContainsFunc(bad, func(s sdk.Service) bool { return s.Name == f.Name }) {
			t.Errorf("%s failed: %v; want a refusal of a bad Service with a remedy", f.Name, f.Err)
		}
	}
	if got := s.Updates[0].Set; len(got) != 2 || !got[0].Equal(large) || !got[1].Equal(small) {
		t.Errorf("%d Services arrived; want the two good ones", len(got))
	}
}

// TestABigUpdateArrives sends 10,000 Services with ten endpoints each, in several messages.
func TestABigUpdateArrives(t *testing.T) {
	u := bulk(10000, 10)
	u.Node = &sdk.Node{Name: "n1", MasqueradeBit: 14}
	for i := range 10000 {
		u.Delete = append(u.Delete, bulkService(20000+i, 1).Name)
	}
	s := &subject{}
	r := configured(t, local(t, s), order{})
	if _, err := r.Sync(soon(t), u); err != nil {
		t.Fatal(err)
	}
	got := s.Updates[0]
	if len(got.Set) != len(u.Set) || !slices.Equal(got.Delete, u.Delete) || !got.Node.Equal(*u.Node) {
		t.Fatalf("%d Services and %d names to delete arrived", len(got.Set), len(got.Delete))
	}
	for i := range got.Set {
		if !got.Set[i].Equal(u.Set[i]) {
			t.Fatalf("sent\n%+v, got\n%+v", u.Set[i], got.Set[i])
		}
	}
}

// TestACutOffUpdateChangesNothing cancels a stream before its end.
func TestACutOffUpdateChangesNothing(t *testing.T) {
	s := &subject{}
	r := configured(t, local(t, s), order{})
	ctx, cutOff := context.WithCancel(soon(t))
	stream, err := r.client.Sync(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&pb.UpdateChunk{Head: &pb.UpdateHead{Session: r.sessionID(), Full: true, To: 1}}); err != nil {
		t.Fatal(err)
	}
	cutOff()
	if _, err := stream.Recv(); status.Code(err) != codes.Canceled {
		t.Errorf("got %v; want that it was cut off", err)
	}
	if _, err := r.Sync(soon(t), full(7)); err != nil || len(s.Updates) != 1 || s.Updates[0].To != 7 {
		t.Errorf("the dataplane got %+v, %v; want only the next update", s.Updates, err)
	}
}
