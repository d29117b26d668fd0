// SPDX-License-Identifier: Apache-2.0

//go:build !nextmajor

package wire

import (
	"google.golang.org/grpc"

	pb "github.com/pointsman/pointsman/sdk/wire/dataplanepb"
)

// Major is the version of the wire that this sdk speaks: pointsman.dataplane.v1.
// A change that an older end would misunderstand makes a new one; everything else
// is a new field.
const Major uint32 = 1

// Majors returns those that a host of this version speaks: the newest, and the one
// before it once there is one. A plugin speaks Major only.
func Majors() []uint32 { return []uint32{Major} }

// speaking returns conn, for calls of this major.
func speaking(conn *grpc.ClientConn, _ uint32) grpc.ClientConnInterface { return conn }

func (s *server) register(r grpc.ServiceRegistrar) {
	pb.RegisterHelloServer(r, s)
	pb.RegisterDataplaneServer(r, s)
}
