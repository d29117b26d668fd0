// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pointsman/pointsman/sdk"
	pb "github.com/pointsman/pointsman/sdk/wire/dataplanepb"
)

// FuzzServiceSurvives checks that a Service arrives unchanged or is refused by name.
func FuzzServiceSurvives(f *testing.F) {
	f.Add("ns", "web", "http", uint8(1), uint8(1), []byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, int64(5), uint16(80))
	f.Add("ns", "dns", "", uint8(2), uint8(2), []byte("sixteen bytes ab and a little more than that to be sure"), int64(-1), uint16(0))
	f.Add("\xff", "", "", uint8(99), uint8(0), []byte{}, int64(0), uint16(0))
	f.Fuzz(func(t *testing.T, ns, service, port string, protocol, family uint8, raw []byte, affinity int64, health uint16) {
		svc := fuzzService(sdk.Family(family), raw)
		svc.Name.Namespace, svc.Name.Service, svc.Name.Port, svc.Name.Protocol = ns, service, port, sdk.Protocol(protocol)
		svc.Affinity, svc.HealthPort = time.Duration(affinity), health
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
		case len(got.Set) == 0 && len(failed) == 1 && failed[0].Name != svc.Name:
			t.Errorf("%s failed; want %s", failed[0].Name, svc.Name)
		case len(got.Set) == 0 && !unsound && utf8All(ns, service, port):
			t.Errorf("a sound Service did not arrive: %+v: %v", svc, failed)
		}
	})
}

// fuzzService converts raw to addresses.
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

// FuzzChunksAreHarmless checks that no message of a host makes a plugin panic.
func FuzzChunksAreHarmless(f *testing.F) {
	good, err := proto.Marshal(&pb.UpdateChunk{Head: &pb.UpdateHead{Node: &pb.Node{Name: "n"}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	svc := encodeService(&bulk(1, 3).Set[0])
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
				t.Errorf("an unsound Service was decoded: %v", err)
			}
		}
	})
}

// FuzzAnswersAreHarmless checks that no answer of a plugin makes a host panic, and that a decoded answer can be encoded
// and decoded again.
func FuzzAnswersAreHarmless(f *testing.F) {
	served := encodeServed(sdk.Served{
		Name:      bulkService(1, 1).Name,
		Frontend:  bulkService(1, 1).Frontends[0],
		Endpoints: []netip.AddrPort{netip.MustParseAddrPort("10.0.0.1:80")},
	})
	entry := encodeAffinityEntry(sdk.AffinityEntry{
		Name:     bulkService(1, 1).Name,
		Client:   netip.MustParseAddr("fd00::1"),
		Endpoint: netip.MustParseAddrPort("10.0.0.1:80"),
		Left:     time.Hour,
	})
	for kind, m := range []proto.Message{
		served, entry,
		encodeVitals(Vitals{Role: sdk.Active, Report: sdk.Report{
			Samples:    []sdk.Sample{{Name: "m", Help: "Ms.", Labels: map[string]string{"a": "b"}}},
			Histograms: []sdk.Histogram{sdk.NewHistogram("h", map[string]string{"a": "b"}, 1, 2)},
			Dropped:    []sdk.Drops{{Reason: sdk.DropNoEndpoint, Family: sdk.IPv6, Packets: 7}},
		}}),
		newServer(sdk.Description{Name: "x"}, nil).hello,
		encodeDescription(subjectDescription()),
		encodeProblem(&sdk.Refusal{Field: "f", Why: "w", Try: "t"}),
		&pb.ResultChunk{Failed: []*pb.Failure{{}}},
	} {
		raw, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint8(kind), raw)
	}
	f.Fuzz(func(t *testing.T, kind uint8, raw []byte) {
		switch kind % 7 {
		case 0:
			again(t, raw, &pb.Served{}, decodeServed, sure(encodeServed))
		case 1:
			again(t, raw, &pb.AffinityEntry{}, decodeAffinityEntry, sure(encodeAffinityEntry))
		case 2:
			again(t, raw, &pb.ReportReply{}, sure(decodeVitals), sure(encodeVitals))
		case 3:
			_ = decoded(raw, &pb.HelloReply{}, decodeHello).checkMajors()
		case 4:
			again(t, raw, &pb.Description{}, sure(decodeDescription), sure(encodeDescription))
		case 5:
			again(t, raw, &pb.Problem{}, sure(decodeProblem), sure(encodeProblem))
		case 6:
			for _, f := range decoded(raw, &pb.ResultChunk{}, (*pb.ResultChunk).GetFailed) {
				_, _ = decodeFailure(f)
			}
		}
	})
}

// decoded returns the value of raw, or of the zero message if raw is invalid.
func decoded[M proto.Message, V any](raw []byte, m M, decode func(M) V) V {
	if proto.Unmarshal(raw, m) != nil {
		proto.Reset(m)
	}
	return decode(m)
}

// sure returns f with an error that is always nil.
func sure[A, B any](f func(A) B) func(A) (B, error) {
	return func(a A) (B, error) { return f(a), nil }
}

// again decodes raw, encodes the value, and decodes it again.
func again[M proto.Message, V any](t *testing.T, raw []byte, m M, decode func(M) (V, error), encode func(V) (M, error)) {
	t.Helper()
	if proto.Unmarshal(raw, m) != nil {
		return
	}
	v, err := decode(m)
	if err != nil {
		return
	}
	first, err := encode(v)
	if err != nil {
		t.Fatalf("%+v was decoded, and cannot be encoded: %v", v, err)
	}
	back, err := decode(first)
	if err != nil {
		t.Fatalf("%+v was encoded, and cannot be decoded: %v", v, err)
	}
	second, err := encode(back)
	if err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(first, second) {
		t.Errorf("first\n%v\nthen\n%v", first, second)
	}
}

// FuzzNodeSurvives checks that a Node arrives unchanged or is refused.
func FuzzNodeSurvives(f *testing.F) {
	f.Add("n1", []byte{10, 0, 0, 1, 8}, []byte("sixteen bytes ab\x40"), "br0", "veth", true, uint8(14), uint32(9), int64(5))
	f.Add("\xff", []byte{}, []byte{1}, "", "", false, uint8(77), uint32(0), int64(-1))
	f.Fuzz(func(t *testing.T, name string, a, b []byte, bridge, prefix string, all bool, bit uint8, limit uint32, timeout int64) {
		node := sdk.Node{
			Name:          name,
			Pods:          sdk.Pods{Bridge: bridge, InterfacePrefix: prefix},
			MasqueradeAll: all,
			MasqueradeBit: bit,
			Conntrack:     sdk.ConntrackLimits{Max: limit, TCPBeLiberal: all, UDPTimeout: time.Duration(timeout)},
		}
		for _, raw := range [][]byte{a, b} {
			var d decoder
			if p := d.prefix("", raw); d.err == nil {
				node.Addrs = append(node.Addrs, p.Addr())
				node.NodePorts = append(node.NodePorts, p)
				node.Pods.CIDRs = append(node.Pods.CIDRs, p)
				node.PodCIDRs = append(node.PodCIDRs, p)
			}
		}
		got, _, err := travel(sdk.Update{Full: true, To: 1, Node: &node})
		sound := bit < 32 && utf8All(name, bridge, prefix)
		if err != nil && sound {
			t.Errorf("%+v: %v", node, err)
		}
		if err == nil && (!sound || !got.Node.Equal(node)) {
			t.Errorf("sent\n%+v\ngot\n%+v", node, got.Node)
		}
	})
}

// FuzzErrorSurvives checks that an error keeps its text and what it wraps.
func FuzzErrorSurvives(f *testing.F) {
	f.Add("lost my place", "field", "why", "try", uint8(0))
	f.Add("\xff", "", "\xfe", "", uint8(1))
	f.Fuzz(func(t *testing.T, words, field, why, try string, kind uint8) {
		sent := []error{
			errors.New(words),
			&sdk.Refusal{Field: field, Why: why, Try: try},
			fmt.Errorf("%s: %w", words, sdk.ErrResync),
			fmt.Errorf("%s: %w", words, ErrFenced),
			fmt.Errorf("%s: %w", words, &sdk.Refusal{Field: field, Why: why, Try: try}),
		}[kind%5]
		got := decodeStatus(encodeStatus(sent))
		if got.Error() != Printable(sent.Error()) {
			t.Errorf("sent %q, got %q", sent, got)
		}
		for _, target := range []error{sdk.ErrResync, ErrFenced} {
			if errors.Is(sent, target) != errors.Is(got, target) {
				t.Errorf("sent %q, got %q, which differs for %v", sent, got, target)
			}
		}
		var before, after *sdk.Refusal
		if errors.As(sent, &before) != errors.As(got, &after) {
			t.Errorf("sent %#v, got %#v", sent, got)
		}
		if before != nil && *after != (sdk.Refusal{Field: Printable(before.Field), Why: Printable(before.Why), Try: Printable(before.Try)}) {
			t.Errorf("sent %#v, got %#v", before, after)
		}
	})
}
