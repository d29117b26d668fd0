// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/pointsman/pointsman/sdk"
	pb "github.com/pointsman/pointsman/sdk/wire/dataplanepb"
)

// Inspect is as sdk.Inspector says, or ErrUnsupported.
func (r *Remote) Inspect(ctx context.Context, f func(sdk.Served) error) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	stream, err := r.client.Inspect(ctx, &pb.InspectRequest{})
	if err != nil {
		return r.callError("Inspect", err)
	}
	var own error // the function's, which is not to be decorated
	err = receiveAll(stream, func(reply *pb.InspectReply) error {
		for _, s := range reply.GetServed() {
			served, err := decodeServed(s)
			if err != nil {
				return err
			}
			if own = f(served); own != nil {
				return own
			}
		}
		return nil
	})
	if own != nil {
		return own
	}
	return r.callError("Inspect", err)
}

func (s *server) Inspect(_ *pb.InspectRequest, stream grpc.ServerStreamingServer[pb.InspectReply]) error {
	inspector, ok := s.dataplane.(sdk.Inspector)
	if !ok {
		return encodeStatus(fmt.Errorf("inspect: %w", ErrUnsupported))
	}
	b := batch[*pb.Served]{send: func(served []*pb.Served) error { return stream.Send(&pb.InspectReply{Served: served}) }}
	err := inspector.Inspect(stream.Context(), func(served sdk.Served) error {
		out, err := encodeServed(served)
		if err != nil {
			return fmt.Errorf("inspect %s: %w", served.Name, err)
		}
		return b.add(out, proto.Size(out))
	})
	if err != nil {
		return encodeStatus(err)
	}
	return b.flush()
}

// ExportAffinity is as sdk.AffinityCarrier says, or ErrUnsupported.
func (r *Remote) ExportAffinity(ctx context.Context, f func(sdk.AffinityEntry) error) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	stream, err := r.client.Stuck(ctx, &pb.StuckRequest{})
	if err != nil {
		return r.callError("Stuck", err)
	}
	var own error
	many := 0
	err = receiveAll(stream, func(reply *pb.StuckReply) error {
		if many += len(reply.GetSticks()); many > maxAffinityEntries {
			return tooMany("clients", maxAffinityEntries)
		}
		for _, s := range reply.GetSticks() {
			entry, err := decodeAffinityEntry(s)
			if err != nil {
				return err
			}
			if own = f(entry); own != nil {
				return own
			}
		}
		return nil
	})
	if own != nil {
		return own
	}
	return r.callError("Stuck", err)
}

func (s *server) Stuck(_ *pb.StuckRequest, stream grpc.ServerStreamingServer[pb.StuckReply]) error {
	carrier, ok := s.dataplane.(sdk.AffinityCarrier)
	if !ok {
		return encodeStatus(fmt.Errorf("stuck: %w", ErrUnsupported))
	}
	b := batch[*pb.Stick]{send: func(entries []*pb.Stick) error { return stream.Send(&pb.StuckReply{Sticks: entries}) }}
	err := carrier.ExportAffinity(stream.Context(), func(entry sdk.AffinityEntry) error {
		out, err := encodeAffinityEntry(entry)
		if err != nil {
			return fmt.Errorf("client %s of %s: %w", entry.Client, entry.Name, err)
		}
		return b.add(out, proto.Size(out))
	})
	if err != nil {
		return encodeStatus(err)
	}
	return b.flush()
}

// ImportAffinity is as sdk.AffinityCarrier says, or ErrUnsupported.
func (r *Remote) ImportAffinity(ctx context.Context, entries []sdk.AffinityEntry) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
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
	b := batch[*pb.Stick]{send: func(s []*pb.Stick) error { return send(&pb.SeedChunk{Session: session, Sticks: s}) }}
	for _, entry := range entries {
		out, err := encodeAffinityEntry(entry)
		if err != nil {
			return fmt.Errorf("client %s of %s: %w", entry.Client, entry.Name, err)
		}
		if err := b.add(out, proto.Size(out)); err != nil {
			return err
		}
	}
	return send(&pb.SeedChunk{Session: session, Sticks: b.items, Last: true})
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
