// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"crypto/tls"
	"net"
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

// A keeper is a dataplane that keeps the state and does nothing with it.
type keeper struct{ state sdk.State }

func (k *keeper) Configure(context.Context, sdk.Setup) (sdk.Description, error) {
	k.state = sdk.State{}
	return subjectDescription(), nil
}

func (k *keeper) Sync(_ context.Context, u sdk.Update) (sdk.Result, error) {
	if _, err := k.state.Apply(u); err != nil {
		return sdk.Result{}, err
	}
	k.state.Confirm()
	return sdk.Result{}, nil
}

func (k *keeper) SetRole(context.Context, sdk.Role) error { return nil }

func (k *keeper) Cleanup(context.Context, sdk.Leftovers) ([]string, error) { return nil, nil }

// joined is both ends on a real unix socket with real mutual TLS, as a launched
// plugin has them, in one process.
func joined(b *testing.B, register func(*grpc.Server)) *grpc.ClientConn {
	b.Helper()
	cert, key, err := newKeys()
	if err != nil {
		b.Fatal(err)
	}
	config, err := hostTLS(cert, key, nil)
	if err != nil {
		b.Fatal(err)
	}
	h := Handle{Network: "unix", Address: filepath.Join(b.TempDir(), "s"), Cert: cert, Key: key, Peer: config.Certificates[0].Certificate[0]}
	listener, err := net.Listen("unix", h.Address)
	if err != nil {
		b.Fatal(err)
	}
	trust, err := hostTLS(cert, key, h.Peer)
	if err != nil {
		b.Fatal(err)
	}
	trust.ClientCAs, trust.ClientAuth = trust.RootCAs, tls.RequireAndVerifyClientCert
	g := grpc.NewServer(append(serverOptions(), grpc.Creds(credentials.NewTLS(trust)))...)
	register(g)
	go g.Serve(listener)
	b.Cleanup(g.Stop)
	conn, err := dial(h, 0)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { conn.Close() })
	return conn
}

// kept is a Remote whose dataplane only keeps what it is told.
func kept(b *testing.B) *Remote {
	b.Helper()
	s := newServer(subjectDescription(), &keeper{})
	conn := joined(b, func(g *grpc.Server) { s.register(g) })
	r := newRemote(conn, s.hello, Handle{}, newProcess(0))
	if _, err := r.Configure(context.Background(), sdk.Setup{}); err != nil {
		b.Fatal(err)
	}
	return r
}

// BenchmarkFull10kx10 is a Full of 10,000 Services with ten endpoints each: all of
// its way, and each leg of it alone.
func BenchmarkFull10kx10(b *testing.B) {
	u := bulk(10000, 10)
	chunks, bytes := marshalled(b, u)
	b.Run("whole", func(b *testing.B) {
		r := kept(b)
		b.ReportAllocs()
		for b.Loop() {
			if _, err := r.Sync(context.Background(), u); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(bytes)/100_000, "B/endpoint")
	})
	b.Run("encode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			marshalled(b, u)
		}
	})
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			unmarshalled(b, chunks)
		}
	})
	b.Run("apply", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := (&keeper{}).Sync(context.Background(), u); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func marshalled(b *testing.B, u sdk.Update) (chunks [][]byte, size int) {
	b.Helper()
	_, err := sendUpdate("session", u, func(c *pb.UpdateChunk) error {
		raw, err := proto.Marshal(c)
		chunks, size = append(chunks, raw), size+len(raw)
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	return chunks, size
}

func unmarshalled(b *testing.B, chunks [][]byte) sdk.Update {
	b.Helper()
	in := &incoming{}
	for _, raw := range chunks {
		c := &pb.UpdateChunk{}
		if err := proto.Unmarshal(raw, c); err != nil {
			b.Fatal(err)
		}
		if _, err := in.add(c); err != nil {
			b.Fatal(err)
		}
	}
	return in.update
}

// BenchmarkRoundTrip is an update of one Service out of 100 and out of 10,000, in
// turn with a bare gRPC echo: the same kind of socket with nothing of ours on it.
// Its figures are medians, so that a busy machine spoils them less.
func BenchmarkRoundTrip(b *testing.B) {
	echoes := pb.NewHelloClient(joined(b, func(g *grpc.Server) { pb.RegisterHelloServer(g, echo{}) }))
	trips := []*trip{
		{unit: "µs/echo", once: func() error {
			_, err := echoes.Hello(context.Background(), &pb.HelloRequest{})
			return err
		}},
		{unit: "µs/of100", once: updates(b, 100)},
		{unit: "µs/of10k", once: updates(b, 10_000)},
	}
	for b.Loop() {
		for _, t := range trips {
			if err := t.take(); err != nil {
				b.Fatal(err)
			}
		}
	}
	for _, t := range trips {
		b.ReportMetric(float64(t.median())/float64(time.Microsecond), t.unit)
	}
	b.ReportMetric(float64(trips[1].median())/float64(trips[0].median()), "x-echo")
	b.ReportMetric(float64(trips[2].median())/float64(trips[1].median()), "x-of100")
}

// A trip is something done again and again, and how long it took each time.
type trip struct {
	unit string
	once func() error
	took []time.Duration
}

func (t *trip) take() error {
	began := time.Now()
	err := t.once()
	t.took = append(t.took, time.Since(began))
	return err
}

func (t *trip) median() time.Duration {
	slices.Sort(t.took)
	return t.took[len(t.took)/2]
}

// updates sends one Service out of so many, each time another value of it.
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

// An echo is the least that a gRPC server can do.
type echo struct{ pb.UnimplementedHelloServer }

func (echo) Hello(context.Context, *pb.HelloRequest) (*pb.HelloReply, error) {
	return &pb.HelloReply{Name: "echo"}, nil
}
