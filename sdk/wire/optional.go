// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc"

	"github.com/pointsman/pointsman/sdk"
	pb "github.com/pointsman/pointsman/sdk/wire/dataplanepb"
)

// Inspect is as sdk.Inspector says, or ErrUnsupported.
func (r *Remote) Inspect(ctx context.Context, f func(sdk.Served) error) error {
	ctx, cancel := r.within(ctx, readTimeout)
	defer cancel()
	stream, err := r.client.Inspect(ctx, &pb.InspectRequest{})
	if err != nil {
		return r.callError("Inspect", err)
	}
	return r.callError("Inspect", receiveItems(stream, (*pb.InspectReply).GetServed, decodeServed, f))
}

func (s *server) Inspect(_ *pb.InspectRequest, stream grpc.ServerStreamingServer[pb.InspectReply]) error {
	inspector, ok := s.dataplane.(sdk.Inspector)
	if !ok {
		return encodeStatus(fmt.Errorf("inspect: %w", ErrUnsupported))
	}
	c := newReply(stream.Send)
	err := inspector.Inspect(stream.Context(), func(served sdk.Served) error {
		out, err := encodeServed(served)
		if err != nil {
			return fmt.Errorf("inspect %w", err)
		}
		return add(c, out, func(m *pb.InspectReply) *[]*pb.Served { return &m.Served })
	})
	if err != nil {
		return encodeStatus(err)
	}
	return c.flush()
}

// ExportAffinity is as sdk.AffinityCarrier says, or ErrUnsupported.
func (r *Remote) ExportAffinity(ctx context.Context, f func(sdk.AffinityEntry) error) error {
	ctx, cancel := r.within(ctx, readTimeout)
	defer cancel()
	stream, err := r.client.Stuck(ctx, &pb.StuckRequest{})
	if err != nil {
		return r.callError("Stuck", err)
	}
	many := 0
	return r.callError("Stuck", receiveItems(stream, (*pb.StuckReply).GetSticks, func(s *pb.Stick) (sdk.AffinityEntry, error) {
		if many++; many > maxAffinityEntries {
			return sdk.AffinityEntry{}, tooMany("clients", maxAffinityEntries)
		}
		return decodeAffinityEntry(s)
	}, f))
}

// receiveItems calls f for each item of a stream's messages.
func receiveItems[M, P, V any](stream grpc.ServerStreamingClient[M], items func(*M) []P, decode func(P) (V, error), f func(V) error) error {
	return receiveAll(stream, func(m *M) error {
		for _, item := range items(m) {
			v, err := decode(item)
			if err != nil {
				return err
			}
			if err := f(v); err != nil {
				return callerError{err}
			}
		}
		return nil
	})
}

func (s *server) Stuck(_ *pb.StuckRequest, stream grpc.ServerStreamingServer[pb.StuckReply]) error {
	carrier, ok := s.dataplane.(sdk.AffinityCarrier)
	if !ok {
		return encodeStatus(fmt.Errorf("stuck: %w", ErrUnsupported))
	}
	c := newReply(stream.Send)
	err := carrier.ExportAffinity(stream.Context(), func(entry sdk.AffinityEntry) error {
		out, err := encodeAffinityEntry(entry)
		if err != nil {
			return err
		}
		return add(c, out, func(m *pb.StuckReply) *[]*pb.Stick { return &m.Sticks })
	})
	if err != nil {
		return encodeStatus(err)
	}
	return c.flush()
}

// ImportAffinity is as sdk.AffinityCarrier says, or ErrUnsupported.
func (r *Remote) ImportAffinity(ctx context.Context, entries []sdk.AffinityEntry) error {
	ctx, cancel := r.within(ctx, readTimeout)
	defer cancel()
	stream, err := r.client.Seed(ctx)
	if err != nil {
		return r.callError("Seed", err)
	}
	err = sendAffinity(r.sessionID(), entries, stream.Send)
	if err != nil && !errors.Is(err, io.EOF) {
		return r.callError("Seed", err)
	}
	_, err = stream.CloseAndRecv()
	return r.callError("Seed", err)
}

func sendAffinity(session string, entries []sdk.AffinityEntry, send func(*pb.SeedChunk) error) error {
	c := newReply(send)
	c.chunk.Session = session // the first chunk says it for all
	for _, entry := range entries {
		out, err := encodeAffinityEntry(entry)
		if err == nil {
			err = add(c, out, func(m *pb.SeedChunk) *[]*pb.Stick { return &m.Sticks })
		}
		if err != nil {
			return err
		}
	}
	c.chunk.Last = true
	return send(c.chunk)
}

func (s *server) Seed(stream grpc.ClientStreamingServer[pb.SeedChunk, pb.SeedReply]) error {
	carrier, ok := s.dataplane.(sdk.AffinityCarrier)
	if !ok {
		return encodeStatus(fmt.Errorf("seed: %w", ErrUnsupported))
	}
	id, entries, err := receiveAffinity(stream)
	if err != nil {
		return encodeStatus(err)
	}
	ctx, done, err := s.calls.acquire(stream.Context(), "Seed")
	if err != nil {
		return encodeStatus(err)
	}
	defer done()
	if err := s.session.admit(id); err != nil {
		return encodeStatus(err)
	}
	if err := carrier.ImportAffinity(ctx, entries); err != nil {
		return encodeStatus(because(ctx, err))
	}
	return stream.SendAndClose(&pb.SeedReply{})
}

func receiveAffinity(stream grpc.ClientStreamingServer[pb.SeedChunk, pb.SeedReply]) (session string, entries []sdk.AffinityEntry, err error) {
	for {
		chunk, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return "", nil, errors.New("seed was cut off before its last chunk; nothing was changed")
		}
		if err != nil {
			return "", nil, err
		}
		if chunk.Session != "" {
			session = chunk.Session
		}
		for _, s := range chunk.Sticks {
			entry, err := decodeAffinityEntry(s)
			if err != nil {
				return "", nil, fmt.Errorf("seed: %w", err)
			}
			entries = append(entries, entry)
		}
		if chunk.Last {
			return session, entries, nil
		}
	}
}
