// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

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

// BenchmarkFull10kx10 is a Full of 10,000 Services with ten endpoints each:
// encoded, sent, decoded and applied.
func BenchmarkFull10kx10(b *testing.B) {
	r, u := kept(b), bulk(10000, 10)
	total := 0
	for _, n := range chunksOf(b, u) {
		total += n
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.Sync(context.Background(), u); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(total)/100_000, "B/endpoint")
}

// BenchmarkOneServiceUpdate is the round trip of an update of one Service; it
// stands next to BenchmarkBareGRPCEcho, the same socket with nothing of ours on it.
func BenchmarkOneServiceUpdate(b *testing.B) {
	for _, services := range []int{100, 10000} {
		b.Run(fmt.Sprintf("of%d", services), func(b *testing.B) {
			r := kept(b)
			if _, err := r.Sync(context.Background(), bulk(services, 10)); err != nil {
				b.Fatal(err)
			}
			a, z := bulkService(7, 10), bulkService(7, 9)
			bytes := 0
			for _, n := range chunksOf(b, sdk.Update{From: 1, To: 2, Set: []sdk.Service{z}}) {
				bytes += n
			}
			rev := uint64(1)
			for b.Loop() {
				a, z = z, a
				if _, err := r.Sync(context.Background(), sdk.Update{From: rev, To: rev + 1, Set: []sdk.Service{a}}); err != nil {
					b.Fatal(err)
				}
				rev++
			}
			b.ReportMetric(float64(bytes), "B/update")
		})
	}
}

// An echo is the least that a gRPC server can do.
type echo struct{ pb.UnimplementedHelloServer }

func (echo) Hello(context.Context, *pb.HelloRequest) (*pb.HelloReply, error) {
	return &pb.HelloReply{Name: "echo"}, nil
}

func BenchmarkBareGRPCEcho(b *testing.B) {
	client := pb.NewHelloClient(joined(b, func(g *grpc.Server) { pb.RegisterHelloServer(g, echo{}) }))
	for b.Loop() {
		if _, err := client.Hello(context.Background(), &pb.HelloRequest{}); err != nil {
			b.Fatal(err)
		}
	}
}
