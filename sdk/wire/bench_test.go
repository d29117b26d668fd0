// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/proto"

	"github.com/pointsman/pointsman/sdk"
	pb "github.com/pointsman/pointsman/sdk/wire/dataplanepb"
)

// kept returns a Remote of a dataplane that only stores the state.
func kept(b *testing.B) *Remote {
	b.Helper()
	d := subjectDescription()
	store := sdk.Whole(d, func(context.Context, sdk.State) error { return nil })
	r := joined(b, func(g *grpc.Server) { newServer(d, store).register(g) })
	if _, err := r.Configure(context.Background(), sdk.Setup{}); err != nil {
		b.Fatal(err)
	}
	return r
}

// joined returns a Remote whose server is in this process, over a unix socket with mutual TLS, as with a launched plugin.
func joined(b *testing.B, register func(*grpc.Server)) *Remote {
	b.Helper()
	certified := httptest.NewTLSServer(nil) // has a certificate
	defer certified.Close()
	pool := x509.NewCertPool()
	pool.AddCert(certified.Certificate())
	config := &tls.Config{Certificates: certified.TLS.Certificates, RootCAs: pool, ClientAuth: tls.RequireAnyClientCert, ServerName: "example.com"}
	listener, err := net.Listen("unix", filepath.Join(shortDir(b), "s"))
	if err != nil {
		b.Fatal(err)
	}
	g := grpc.NewServer(append(serverOptions(), grpc.Creds(credentials.NewTLS(config)))...)
	register(g)
	go g.Serve(listener)
	b.Cleanup(g.Stop)
	end, err := net.Dial("unix", listener.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	return remoteOver(b, end, config, Hello{Majors: Majors()})
}

// BenchmarkFull10kx10 measures a full update of 10,000 Services with ten endpoints each, and each of its parts.
func BenchmarkFull10kx10(b *testing.B) {
	u := bulk(10_000, 10)
	chunks, bytes := marshalled(b, u)
	r := kept(b)
	legs := trips{
		{unit: "ms/whole", once: func() error {
			_, err := r.Sync(context.Background(), u)
			return err
		}},
		{unit: "ms/encode", once: func() error { marshalled(b, u); return nil }},
		{unit: "ms/decode", once: func() error { unmarshalled(b, chunks); return nil }},
		{unit: "ms/apply", once: func() error {
			var state sdk.State
			_, err := state.Apply(u)
			state.Confirm()
			return err
		}},
	}
	for b.Loop() {
		legs.take(b)
	}
	legs.report(b, time.Millisecond)
	b.ReportMetric(1/(legs.ratio(1, 0)+legs.ratio(2, 0)+legs.ratio(3, 0)), "x-sum-of-legs")
	b.ReportMetric(float64(bytes)/100_000, "B/endpoint(≤16)")
}

// TestBytesPerEndpoint checks the size of a full update on the wire, divided by its endpoints.
func TestBytesPerEndpoint(t *testing.T) {
	for _, c := range []struct {
		services, endpoints int
		most                float64
	}{
		{10_000, 10, 16},
		{10_000, 1, 80}, // mostly of the Service
		{10, 10_000, 8},
		{1, 150_000, 8},
	} {
		_, bytes := marshalled(t, bulk(c.services, c.endpoints))
		if each := float64(bytes) / float64(c.services*c.endpoints); each > c.most {
			t.Errorf("%d Services of %d endpoints take %.1f bytes for each endpoint, more than %v", c.services, c.endpoints, each, c.most)
		} else {
			t.Logf("%d Services of %d endpoints: %.1f bytes for each endpoint", c.services, c.endpoints, each)
		}
	}
}

func marshalled(b testing.TB, u sdk.Update) (chunks [][]byte, size int) {
	b.Helper()
	_, err := sendUpdate("session", u, func(c *pb.UpdateChunk) error {
		raw, err := proto.Marshal(c)
		if len(raw) > chunkSize {
			b.Errorf("a chunk has %d bytes", len(raw))
		}
		chunks, size = append(chunks, raw), size+len(raw)
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	return chunks, size
}

func unmarshalled(b testing.TB, chunks [][]byte) sdk.Update {
	b.Helper()
	in := &incoming{}
	for _, raw := range chunks {
		c := &pb.UpdateChunk{}
		if err := proto.Unmarshal(raw, c); err != nil {
			b.Fatal(err)
		}
		if err := in.add(c); err != nil {
			b.Fatal(err)
		}
	}
	return in.update
}

// BenchmarkRoundTrip measures updates of one Service out of 100 and out of 10,000, and a bare gRPC echo over the same kind
// of socket.
func BenchmarkRoundTrip(b *testing.B) {
	echoes := pb.NewHelloClient(joined(b, func(g *grpc.Server) { pb.RegisterHelloServer(g, echo{}) }).conn)
	all := trips{
		{unit: "µs/echo", once: func() error {
			_, err := echoes.Hello(context.Background(), &pb.HelloRequest{})
			return err
		}},
		{unit: "µs/of100", once: updates(b, 100)},
		{unit: "µs/of10k", once: updates(b, 10_000)},
	}
	for b.Loop() {
		all.take(b)
	}
	all.report(b, time.Microsecond)
	b.ReportMetric(all.ratio(1, 0), "x-echo(≤2)")
	b.ReportMetric(all.ratio(2, 1), "x-of100(≤1.3)")
}

// Trips are measured in turn, because a busy machine then slows all of them, and reported as medians.
type trips []*trip

// A trip is one kind of call, with the durations of its repetitions.
type trip struct {
	unit string
	once func() error
	took []time.Duration
}

func (all trips) take(b *testing.B) {
	for _, t := range all {
		began := time.Now()
		if err := t.once(); err != nil {
			b.Fatal(err)
		}
		t.took = append(t.took, time.Since(began))
	}
}

func (all trips) report(b *testing.B, unit time.Duration) {
	b.ReportMetric(0, "ns/op") // the sum has no meaning
	for _, t := range all {
		b.ReportMetric(float64(t.median())/float64(unit), t.unit)
	}
}

// ratio returns the duration of trip i divided by that of trip j.
func (all trips) ratio(i, j int) float64 {
	return float64(all[i].median()) / float64(all[j].median())
}

func (t *trip) median() time.Duration {
	slices.Sort(t.took)
	return t.took[len(t.took)/2]
}

// updates returns a function that sends one Service out of many, with another value each time.
func updates(b *testing.B, services int) func() error {
	b.Helper()
	r := kept(b)
	if _, err := r.Sync(context.Background(), bulk(services, 10)); err != nil {
		b.Fatal(err)
	}
	next, last := bulkService(7, 9), bulkService(7, 10)
	rev := uint64(1)
	return func() error {
		u := sdk.Update{From: rev, To: rev + 1, Set: []sdk.Service{next}}
		next, last = last, next
		rev++
		_, err := r.Sync(context.Background(), u)
		return err
	}
}

// An echo is the smallest gRPC server.
type echo struct{ pb.UnimplementedHelloServer }

func (echo) Hello(context.Context, *pb.HelloRequest) (*pb.HelloReply, error) {
	return &pb.HelloReply{Name: "echo"}, nil
}
