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

// TestUpdateOfDoc: a host sends the full update of docs/wire.md as the page has it.
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

// A Service that the plugin does not understand is refused, and the others go in.
func TestUnknownValuesAreRefused(t *testing.T) {
	good := bulkService(0, 2)
	bad := []sdk.Service{bulkService(1, 2), bulkService(2, 2), bulkService(3, 2), bulkService(4, 2)}
	bad[0].Name.Protocol = 77
	bad[1].Frontends[0].Kind = 9
	bad[2].Frontends[0].Policy = 250
	bad[3].Cluster[0].Addr = netip.AddrPortFrom(bad[3].Cluster[0].Addr.Addr(), 0)
	s := &subject{}
	r := configured(t, local(t, s), order{})
	result, err := r.Sync(soon(t), full(1, append(bad, good)...))
	if err != nil {
		t.Fatal(err)
	}
	if len(result.Failed) != len(bad) {
		t.Errorf("failed: %v; want the %d bad ones", result.Failed, len(bad))
	}
	got := s.Updates[0]
	if len(got.Set) != 1 || !got.Set[0].Equal(good) {
		t.Errorf("the dataplane was given %+v; want the good one alone", got)
	}
	for i, f := range result.Failed {
		var refusal *sdk.Refusal
		if f.Name != bad[i].Name || !errors.As(f.Err, &refusal) {
			t.Errorf("%s failed with %v", f.Name, f.Err)
		}
	}
}

// A Service that cannot be put on the wire is refused by the sender, and the others go in.
func TestUnsendableIsRefused(t *testing.T) {
	bad := []sdk.Service{bulkService(1, 2), bulkService(2, 2), bulkService(3, 400_000)}
	bad[0].Cluster[1].Addr = netip.MustParseAddrPort("[fe80::1%eth0]:80")
	bad[1].Frontends[0].Addr = netip.AddrPort{}
	s := &subject{}
	r := configured(t, local(t, s), order{})
	result, err := r.Sync(soon(t), full(1, append(bad, bulkService(0, 2))...))
	if err != nil || len(result.Failed) != 3 {
		t.Fatalf("got %v, %v; want the three bad ones", result.Failed, err)
	}
	if got := s.Updates[0]; len(got.Set) != 1 {
		t.Errorf("the dataplane was given %d; want 1", len(got.Set))
	}
}

// Ten thousand Services with ten endpoints each arrive as they were sent, in
// messages of at most 1 MiB.
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
		t.Fatalf("%d Services and %d names to delete came", len(got.Set), len(got.Delete))
	}
	for i := range got.Set {
		if !got.Set[i].Equal(u.Set[i]) {
			t.Fatalf("sent\n%+v, got\n%+v", u.Set[i], got.Set[i])
		}
	}
	total, chunks := 0, 0
	u.Delete = nil
	for _, c := range chunksOf(t, u) {
		if c > chunkSize {
			t.Errorf("a chunk of %d bytes", c)
		}
		total, chunks = total+c, chunks+1
	}
	if perEndpoint := float64(total) / 100_000; perEndpoint > 16 || chunks < 2 {
		t.Errorf("%d chunks, %.1f bytes per endpoint; want at most 16", chunks, perEndpoint)
	}
}

// A Service with very many endpoints arrives as long as it fits a chunk. One that does not
// is refused, with what to do, and the others arrive.
func TestALargeServiceArrives(t *testing.T) {
	fits, does := bulkService(1, 150_000), bulkService(2, 300_000)
	small := bulkService(3, 1)
	u := sdk.Update{To: 1, Full: true, Node: &sdk.Node{Name: "n1"}, Set: []sdk.Service{fits, does, small}}
	s := &subject{}
	r := configured(t, local(t, s), order{})
	result, err := r.Sync(soon(t), u)
	var refusal *sdk.Refusal
	if err != nil || len(result.Failed) != 1 || result.Failed[0].Name != does.Name || !errors.As(result.Failed[0].Err, &refusal) || refusal.Field == "" || refusal.Try == "" {
		t.Fatalf("%+v, %v; want %s refused alone", result.Failed, err, does.Name)
	}
	if got := s.Updates[0]; len(got.Set) != 2 || !got.Set[0].Equal(fits) || !got.Set[1].Equal(small) {
		t.Errorf("%d Services came", len(got.Set))
	}
	for _, c := range chunksOf(t, u) {
		if c > chunkSize {
			t.Errorf("a chunk of %d bytes", c)
		}
	}
}

// An update that is cut off before its end changes nothing.
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
		t.Errorf("the dataplane was called with %+v, %v; want the update after it alone", s.Updates, err)
	}
}
