// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/pointsman/pointsman/sdk"
	pb "github.com/pointsman/pointsman/sdk/wire/dataplanepb"
)

// A gusher is a plugin whose answers are larger than the limits.
type gusher struct {
	pb.UnimplementedHelloServer
	pb.UnimplementedDataplaneServer
	chunk *pb.ResultChunk   // Sync sends it without end
	words []string          // Cleanup sends them without end
	entry *pb.AffinityEntry // ExportAffinity sends it without end
}

func (g gusher) Hello(context.Context, *pb.HelloRequest) (*pb.HelloReply, error) {
	return &pb.HelloReply{Name: strings.Repeat("x", maxHello), Majors: Majors()}, nil
}

func (g gusher) Report(context.Context, *pb.ReportRequest) (*pb.ReportReply, error) {
	reply := &pb.ReportReply{Waiting: strings.Join(g.words, ""), Dropped: []*pb.Drops{{Reason: "boredom", Packets: 1}}}
	for range 2 * maxSamples {
		reply.Samples = append(reply.Samples, &pb.Sample{})
		reply.Histograms = append(reply.Histograms, &pb.Histogram{})
		reply.Dropped = append(reply.Dropped, &pb.Drops{Reason: sdk.DropNoEndpoint, Packets: 7})
	}
	return reply, nil
}

// SetRole returns an error that is larger than a header may be.
func (g gusher) SetRole(context.Context, *pb.SetRoleRequest) (*pb.SetRoleReply, error) {
	return nil, status.Error(codes.Internal, strings.Repeat("x", 2*maxHeader))
}

func (g gusher) Sync(stream grpc.BidiStreamingServer[pb.UpdateChunk, pb.ResultChunk]) error {
	if err := eachChunk(stream, func(*pb.UpdateChunk) error { return nil }); err != nil {
		return err
	}
	for {
		if err := stream.Send(g.chunk); err != nil {
			return err
		}
	}
}

func (g gusher) Cleanup(_ *pb.CleanupRequest, stream grpc.ServerStreamingServer[pb.CleanupReply]) error {
	for {
		if err := stream.Send(&pb.CleanupReply{Removed: g.words}); err != nil {
			return err
		}
	}
}

func (g gusher) ExportAffinity(_ *pb.ExportAffinityRequest, stream grpc.ServerStreamingServer[pb.ExportAffinityReply]) error {
	reply := &pb.ExportAffinityReply{}
	for range 10_000 {
		reply.Entries = append(reply.Entries, g.entry)
	}
	for {
		if err := stream.Send(reply); err != nil {
			return err
		}
	}
}

// gushing returns a Remote of g.
func gushing(t *testing.T, g gusher) *Remote {
	t.Helper()
	return faking(t, func(s *grpc.Server) {
		pb.RegisterHelloServer(s, g)
		pb.RegisterDataplaneServer(s, g)
	})
}

// TestAnswersAreBounded checks the limits of each answer.
func TestAnswersAreBounded(t *testing.T) {
	entry := encodeAffinityEntry(sdk.AffinityEntry{Name: bulkService(1, 1).Name, Client: netip.MustParseAddr("10.0.0.1"),
		Endpoint: netip.MustParseAddrPort("10.0.0.2:80"), Left: time.Hour})
	megabyte := strings.Repeat("x", 1<<20)
	sync := func(r *Remote) error { _, err := r.Sync(soon(t), full(1)); return err }
	clean := func(r *Remote) error { _, err := r.Cleanup(soon(t), sdk.Leftovers{}); return err }
	for _, c := range []struct {
		name string
		g    gusher
		call func(*Remote) error
		want string // a part of the error
	}{
		{"bytes of Hello", gusher{}, func(r *Remote) error { _, err := callHello(soon(t), r.conn); return err }, "larger than max"},
		{"bytes of Report", gusher{words: []string{megabyte}}, func(r *Remote) error { _, err := r.Vitals(soon(t)); return err }, "larger than max"},
		{"bytes of an error", gusher{}, func(r *Remote) error { return r.SetRole(soon(t), sdk.Active) }, "stream terminated"},
		{"bytes of a Cleanup", gusher{words: []string{megabyte}}, clean, "items or 67108864 bytes"},
		{"lines of a Cleanup", gusher{words: make([]string, maxRemoved/2)}, clean, "more than 200000 items"},
		{"bytes of a Result", gusher{chunk: &pb.ResultChunk{Failed: []*pb.Failure{{Problem: &pb.Problem{Message: megabyte}}}}}, sync, "items or 67108864 bytes"},
		{"failures of a Result", gusher{chunk: &pb.ResultChunk{Failed: make([]*pb.Failure, maxFailures/2)}}, sync, "more than 200000 items"},
		{"clients of ExportAffinity", gusher{entry: entry}, func(r *Remote) error { return r.ExportAffinity(soon(t), func(sdk.AffinityEntry) error { return nil }) }, "more than 500000 items"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for i, f := range c.g.chunk.GetFailed() {
				if f == nil {
					c.g.chunk.Failed[i] = &pb.Failure{}
				}
			}
			if err := c.call(gushing(t, c.g)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %.200v; want %q", err, c.want)
			}
		})
	}
}

// TestTooMuchIsLeftOut checks that excess samples and unknown reasons of a Report are dropped.
func TestTooMuchIsLeftOut(t *testing.T) {
	v, err := gushing(t, gusher{}).Vitals(soon(t))
	if err != nil || len(v.Samples) != maxSamples || len(v.Histograms) != maxSamples {
		t.Errorf("%d samples and %d histograms, %v; want %d of each", len(v.Samples), len(v.Histograms), err, maxSamples)
	}
	if len(v.Dropped) != maxDrops-1 || v.Dropped[0] != (sdk.Drops{Reason: sdk.DropNoEndpoint, Packets: 7}) {
		t.Errorf("dropped %v", v.Dropped)
	}
}

// TestACallIsBounded checks that a plugin, which runs as root, refuses a message that is larger than any of a host.
func TestACallIsBounded(t *testing.T) {
	r := local(t, &subject{})
	_, err := r.Configure(soon(t), sdk.Setup{Options: bytes.Repeat([]byte("x"), maxUpdate+1)})
	if err == nil || !strings.Contains(err.Error(), "larger than max") {
		t.Errorf("Configure: %v; want that the message is too large", err)
	}
	configured(t, r, order{})
}

// TestWordsAreHarmless checks that a plugin's texts are safe to print on a terminal and in a log.
func TestWordsAreHarmless(t *testing.T) {
	for _, c := range []struct{ said, text, line string }{
		{"plain, tab\tand größe", "plain, tab\tand größe", "plain, tab\tand größe"},
		{"two\nlines", "two\nlines", "two lines"},
		{"\x1b]0;owned\x07\x1b[2J", "\uFFFD]0;owned\uFFFD\uFFFD[2J", "\uFFFD]0;owned\uFFFD\uFFFD[2J"},
		{"\u009b2J\x7f\x00\r", "\uFFFD2J\uFFFD\uFFFD\uFFFD", "\uFFFD2J\uFFFD\uFFFD\uFFFD"},
		{"bad \xff byte", "bad \uFFFD byte", "bad \uFFFD byte"},
	} {
		if got := Printable(c.said); got != c.text {
			t.Errorf("text(%q) = %q, want %q", c.said, got, c.text)
		}
		if got := oneLine(c.said); got != c.line {
			t.Errorf("oneLine(%q) = %q, want %q", c.said, got, c.line)
		}
	}
	for _, long := range []string{strings.Repeat("x", maxMessage+1), strings.Repeat("\xff", maxMessage), strings.Repeat("ö", maxMessage)} {
		if got := Printable(long); len(got) > maxMessage || !utf8.ValidString(got) {
			t.Errorf("%d bytes became %d, valid: %t", len(long), len(got), utf8.ValidString(got))
		}
	}
	const evil = "\x1b[2J\n2026 [ERROR] forged"
	hello := decodeHello(&pb.HelloReply{Name: evil, Version: evil})
	d := decodeDescription(&pb.Description{Name: evil, Version: evil, Features: []string{evil}, Limits: []string{evil}})
	v := decodeVitals(&pb.ReportReply{Waiting: evil, Leaving: evil, Call: evil, Notes: []string{evil}})
	for _, said := range []string{
		hello.Name, hello.Version,
		d.Name, d.Version, string(d.Features[0]), string(d.Limits[0]), v.Waiting, v.SwapImpact, v.Call, v.Notes[0],
	} {
		if said != oneLine(evil) {
			t.Errorf("decoded as %q", said)
		}
	}
}

// TestChunker checks that messages are filled up to their limit, and that an empty one is not sent.
func TestChunker(t *testing.T) {
	item := func(size int) *pb.Failure {
		return &pb.Failure{Problem: &pb.Problem{Message: strings.Repeat("x", size)}}
	}
	list := func(m *pb.ResultChunk) *[]*pb.Failure { return &m.Failed }
	var sent []int
	c := newReply(func(r *pb.ResultChunk) error { sent = append(sent, len(r.Failed)); return nil })
	if err := c.flush(); err != nil || len(sent) != 0 {
		t.Errorf("sent %v without an item: %v", sent, err)
	}
	for _, size := range []int{c.most, 1, c.most * 2, c.most/2 - 20, c.most/2 - 20, 1} {
		if err := add(c, item(size), list); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.flush(); err != nil || !slices.Equal(sent, []int{1, 1, 1, 2, 1}) {
		t.Errorf("messages of %v items: %v, want 1 1 1 2 1", sent, err)
	}
	broken := newReply(func(*pb.ResultChunk) error { return errors.New("the line is cut") })
	if err := errors.Join(add(broken, item(broken.most), list), add(broken, item(1), list)); err == nil {
		t.Error("an error of send is not returned")
	}
}

// TestDebuggedHasTime checks the deadline of a call, which Debugged extends to a day.
func TestDebuggedHasTime(t *testing.T) {
	var r Remote
	has := func(want time.Duration) {
		t.Helper()
		var end time.Time
		var ok bool
		if err := r.call(t.Context(), "Sync", syncTimeout, func(ctx context.Context) error {
			end, ok = ctx.Deadline()
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if left := time.Until(end); !ok || left > want || left < want-time.Minute {
			t.Errorf("the deadline is in %s, want %s", left, want)
		}
	}
	has(syncTimeout)
	r.Debugged()
	has(debugTimeout)
}
