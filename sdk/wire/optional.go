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
		return add(c, encodeServed(served), func(m *pb.InspectReply) *[]*pb.Served { return &m.Served })
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
	stream, err := r.client.ExportAffinity(ctx, &pb.ExportAffinityRequest{})
	if err != nil {
		return r.callError("ExportAffinity", err)
	}
	many := 0
	return r.callError("ExportAffinity", receiveItems(stream, (*pb.ExportAffinityReply).GetEntries, func(s *pb.AffinityEntry) (sdk.AffinityEntry, error) {
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

func (s *server) ExportAffinity(_ *pb.ExportAffinityRequest, stream grpc.ServerStreamingServer[pb.ExportAffinityReply]) error {
	carrier, ok := s.dataplane.(sdk.AffinityCarrier)
	if !ok {
		return encodeStatus(fmt.Errorf("export affinity: %w", ErrUnsupported))
	}
	c := newReply(stream.Send)
	err := carrier.ExportAffinity(stream.Context(), func(entry sdk.AffinityEntry) error {
		return add(c, encodeAffinityEntry(entry), func(m *pb.ExportAffinityReply) *[]*pb.AffinityEntry { return &m.Entries })
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
	stream, err := r.client.ImportAffinity(ctx)
	if err != nil {
		return r.callError("ImportAffinity", err)
	}
	err = sendAffinity(r.sessionID(), entries, stream.Send)
	if err != nil && !errors.Is(err, io.EOF) {
		return r.callError("ImportAffinity", err)
	}
	_, err = stream.CloseAndRecv()
	return r.callError("ImportAffinity", err)
}

func sendAffinity(session string, entries []sdk.AffinityEntry, send func(*pb.ImportAffinityChunk) error) error {
	c := newReply(send)
	c.chunk.Session = session // the first chunk says it for all
	for _, entry := range entries {
		if err := add(c, encodeAffinityEntry(entry), func(m *pb.ImportAffinityChunk) *[]*pb.AffinityEntry { return &m.Entries }); err != nil {
			return err
		}
	}
	c.chunk.Last = true
	return send(c.chunk)
}

func (s *server) ImportAffinity(stream grpc.ClientStreamingServer[pb.ImportAffinityChunk, pb.ImportAffinityReply]) error {
	carrier, ok := s.dataplane.(sdk.AffinityCarrier)
	if !ok {
		return encodeStatus(fmt.Errorf("import affinity: %w", ErrUnsupported))
	}
	id, entries, err := receiveAffinity(stream)
	if err != nil {
		return encodeStatus(err)
	}
	ctx, done, err := s.calls.acquire(stream.Context(), "ImportAffinity")
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
	return stream.SendAndClose(&pb.ImportAffinityReply{})
}

func receiveAffinity(stream grpc.ClientStreamingServer[pb.ImportAffinityChunk, pb.ImportAffinityReply]) (session string, entries []sdk.AffinityEntry, err error) {
	for {
		chunk, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return "", nil, errors.New("import of affinity was cut off before its last chunk; nothing was changed")
		}
		if err != nil {
			return "", nil, err
		}
		if chunk.Session != "" {
			session = chunk.Session
		}
		for _, s := range chunk.Entries {
			entry, err := decodeAffinityEntry(s)
			if err != nil {
				return "", nil, fmt.Errorf("import affinity: %w", err)
			}
			entries = append(entries, entry)
		}
		if chunk.Last {
			return session, entries, nil
		}
	}
}

// Trace is as sdk.Tracer says, or ErrUnsupported.
func (r *Remote) Trace(ctx context.Context, p sdk.Packet) (sdk.Traced, error) {
	ctx, cancel := r.within(ctx, readTimeout)
	defer cancel()
	out, err := r.client.Trace(ctx, encodePacket(p))
	if err != nil {
		return sdk.Traced{}, r.callError("Trace", err)
	}
	traced, err := decodeTraced(out)
	return traced, r.callError("Trace", err)
}

func (s *server) Trace(ctx context.Context, in *pb.TraceRequest) (*pb.TraceReply, error) {
	tracer, ok := s.dataplane.(sdk.Tracer)
	if !ok {
		return nil, encodeStatus(fmt.Errorf("trace: %w", ErrUnsupported))
	}
	p, err := decodePacket(in)
	if err != nil {
		return nil, encodeStatus(fmt.Errorf("trace: %w", err))
	}
	traced, err := tracer.Trace(ctx, p)
	if err != nil {
		return nil, encodeStatus(err)
	}
	return encodeTraced(traced), nil
}
