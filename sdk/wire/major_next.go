// SPDX-License-Identifier: Apache-2.0

//go:build nextmajor

package wire

import (
	"context"
	"strings"

	"google.golang.org/grpc"

	pb "github.com/pointsman/pointsman/sdk/wire/dataplanepb"
)

// This file makes a version to come of this one, for tests of upgrades: its messages
// are the same, but they go by the next major's names, which no older process knows.

// Major is what the plugins of that version speak.
const Major uint32 = 2

// Majors returns what its hosts speak.
func Majors() []uint32 { return []uint32{Major, 1} }

const (
	now  = "pointsman.dataplane.v1.Dataplane"
	next = "pointsman.dataplane.v2.Dataplane"
)

// speaking returns conn, for calls of this major.
func speaking(conn *grpc.ClientConn, major uint32) grpc.ClientConnInterface {
	if major == Major {
		return renamed{conn}
	}
	return conn
}

// A renamed connection calls by the next major's names.
type renamed struct{ *grpc.ClientConn }

func (r renamed) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	return r.ClientConn.Invoke(ctx, strings.Replace(method, now, next, 1), args, reply, opts...)
}

func (r renamed) NewStream(ctx context.Context, d *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	return r.ClientConn.NewStream(ctx, d, strings.Replace(method, now, next, 1), opts...)
}

func (s *server) register(r grpc.ServiceRegistrar) {
	pb.RegisterHelloServer(r, s)
	desc := pb.Dataplane_ServiceDesc
	desc.ServiceName = next
	r.RegisterService(&desc, s)
}
