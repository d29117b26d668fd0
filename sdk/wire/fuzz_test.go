// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"net/netip"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pointsman/pointsman/sdk"
	pb "github.com/pointsman/pointsman/sdk/wire/dataplanepb"
)

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
