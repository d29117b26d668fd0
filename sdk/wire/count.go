// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"

	"github.com/pointsman/pointsman/sdk"
	pb "github.com/pointsman/pointsman/sdk/wire/dataplanepb"
)

// Count is as sdk.Counter says, or ErrUnsupported.
func (r *Remote) Count(ctx context.Context, f func(sdk.Traffic) error) error {
	ctx, cancel := r.within(ctx, readTimeout)
	defer cancel()
	stream, err := r.client.Count(ctx, &pb.CountRequest{})
	if err != nil {
		return r.callError("Count", err)
	}
	many := 0
	return r.callError("Count", receiveItems(stream, (*pb.CountReply).GetTraffic, func(t *pb.Traffic) (sdk.Traffic, error) {
		if many++; many > maxTraffic {
			return sdk.Traffic{}, tooMany("Services", maxTraffic)
		}
		return decodeTraffic(t), nil
	}, f))
}

func (s *server) Count(_ *pb.CountRequest, stream grpc.ServerStreamingServer[pb.CountReply]) error {
	counter, ok := s.dataplane.(sdk.Counter)
	if !ok {
		return encodeStatus(fmt.Errorf("count: %w", ErrUnsupported))
	}
	c := newReply(stream.Send)
	err := counter.Count(stream.Context(), func(t sdk.Traffic) error {
		if err := checkName(t.Name); err != nil {
			return fmt.Errorf("count: %w", err)
		}
		return add(c, encodeTraffic(t), func(m *pb.CountReply) *[]*pb.Traffic { return &m.Traffic })
	})
	if err != nil {
		return encodeStatus(err)
	}
	return c.flush()
}

func encodeTraffic(t sdk.Traffic) *pb.Traffic {
	return &pb.Traffic{
		Name: encodeName(t.Name), SinceUnixNano: t.Since.UnixNano(),
		Connections: t.Connections, Bytes: t.Bytes, BytesIn: t.BytesIn, BytesOut: t.BytesOut,
	}
}

func decodeTraffic(t *pb.Traffic) sdk.Traffic {
	return sdk.Traffic{
		Name: decodeName(t.GetName()), Since: time.Unix(0, t.GetSinceUnixNano()),
		Connections: t.GetConnections(), Bytes: t.GetBytes(), BytesIn: t.GetBytesIn(), BytesOut: t.GetBytesOut(),
	}
}
