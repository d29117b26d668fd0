// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/sdk"
	pb "github.com/pointsman/pointsman/sdk/wire/dataplanepb"
)

// TestChunker fills each message as far as it may be, and sends nothing for nothing.
func TestChunker(t *testing.T) {
	var sent []int
	c := newReply(func(r *pb.CleanupReply) error { sent = append(sent, len(r.Removed)); return nil })
	if err := c.flush(); err != nil || len(sent) != 0 {
		t.Errorf("of nothing it sent %v: %v", sent, err)
	}
	for _, size := range []int{c.most - itemOverhead, 1, c.most * 2, c.most/2 - itemOverhead, c.most/2 - itemOverhead, 1} {
		if err := c.room(size); err != nil {
			t.Fatal(err)
		}
		c.chunk.Removed = append(c.chunk.Removed, "x")
	}
	if err := c.flush(); err != nil || len(sent) != 5 || sent[3] != 2 {
		t.Errorf("messages of %v items: %v, want 1 1 1 2 1", sent, err)
	}
	broken := newReply(func(*pb.CleanupReply) error { return errors.New("the line is cut") })
	if err := errors.Join(broken.room(broken.most), broken.room(1)); err == nil {
		t.Error("an error of send is not returned")
	}
}

// TestConversion names the field that is wrong, the first if there are several.
func TestConversion(t *testing.T) {
	zone := netip.MustParseAddr("fe80::1%eth0")
	for want, err := range map[string]error{
		`node "n1": addresses: address fe80::1%eth0 has a zone`: second(encodeNode(&sdk.Node{Name: "n1", Addrs: []netip.Addr{zone}, NodePorts: make([]netip.Prefix, 1)})),
		`node "n1": masquerade bit: 32 is none of 32`:           second(decodeNode(&pb.Node{Name: "n1", MasqueradeBit: 32})),
		"frontend: address: an address of 3 bytes":              second(decodeService(&pb.Service{Frontends: []*pb.Frontend{{Addr: make([]byte, 3)}}})),
		"health port: a port of 65536":                          second(decodeService(&pb.Service{HealthPort: 1 << 16})),
		"endpoint: an address of 0 bytes":                       second(decodeAffinityEntry(&pb.Stick{Client: make([]byte, 4)})),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func second[V any](_ V, err error) error { return err }
