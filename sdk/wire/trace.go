// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/pointsman/pointsman/sdk"
	pb "github.com/pointsman/pointsman/sdk/wire/dataplanepb"
)

// Trace is as sdk.Tracer says, or ErrUnsupported.
func (r *Remote) Trace(ctx context.Context, p sdk.Packet) (sdk.Traced, error) {
	ctx, cancel := r.within(ctx, readTimeout)
	defer cancel()
	in, err := encodePacket(p)
	if err != nil {
		return sdk.Traced{}, fmt.Errorf("trace: %w", err)
	}
	out, err := r.client.Trace(ctx, in)
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
	out, err := encodeTraced(traced)
	if err != nil {
		return nil, encodeStatus(fmt.Errorf("trace: %w", err))
	}
	return out, nil
}

func encodePacket(p sdk.Packet) (*pb.TraceRequest, error) {
	var c conversion
	out := &pb.TraceRequest{
		Protocol: pb.Protocol(p.Protocol),
		From:     field(&c, "sender", p.From.Addr(), encodeAddr),
		FromPort: uint32(p.From.Port()),
		To:       field(&c, "destination", p.To.Addr(), encodeAddr),
		ToPort:   uint32(p.To.Port()),
		Origin:   pb.Origin(p.Origin) + pb.Origin_ORIGIN_ELSEWHERE,
		In:       p.In,
	}
	if c.err == nil && !utf8All(p.In) {
		c.err = errors.New("the interface is not UTF-8")
	}
	return out, c.err
}

func decodePacket(p *pb.TraceRequest) (sdk.Packet, error) {
	var c conversion
	out := sdk.Packet{
		Protocol: sdk.Protocol(enum(int32(p.GetProtocol()))),
		From:     netip.AddrPortFrom(field(&c, "sender", p.GetFrom(), decodeAddr), field(&c, "port", p.GetFromPort(), port)),
		To:       netip.AddrPortFrom(field(&c, "destination", p.GetTo(), decodeAddr), field(&c, "port", p.GetToPort(), port)),
		Origin:   sdk.Origin(enum(int32(p.GetOrigin() - pb.Origin_ORIGIN_ELSEWHERE))),
		In:       p.GetIn(),
	}
	if c.err == nil && (out.From.Addr().Is4() != out.To.Addr().Is4() || out.Origin > sdk.OnNode) {
		c.err = fmt.Errorf("a packet from %s (%s) to %s", out.From, out.Origin, out.To)
	}
	return out, c.err
}

func encodeTraced(t sdk.Traced) (*pb.TraceReply, error) {
	var c conversion
	out := &pb.TraceReply{Ways: list(&c, "ways", t.Ways, encodeWay), Notes: t.Notes, Connections: t.Connections}
	if c.err == nil && !utf8All(slices.Concat(t.Notes, t.Connections)...) {
		c.err = errors.New("a note is not UTF-8")
	}
	return out, c.err
}

func encodeWay(w sdk.Way) (*pb.Way, error) {
	var c conversion
	out := &pb.Way{
		Verdict: pb.Verdict(w.Verdict) + pb.Verdict_VERDICT_DROP,
		To:      field(&c, "destination", w.To.Addr(), encodeAddr), ToPort: uint32(w.To.Port()),
		Masquerade: w.Masquerade, Then: w.Then, Steps: w.Steps,
	}
	if c.err == nil && !utf8All(append(w.Steps, w.Then)...) {
		c.err = errors.New("a step is not UTF-8")
	}
	return out, c.err
}

func decodeTraced(t *pb.TraceReply) (sdk.Traced, error) {
	var c conversion
	return sdk.Traced{Ways: list(&c, "ways", t.GetWays(), decodeWay), Notes: t.GetNotes(), Connections: t.GetConnections()}, c.err
}

func decodeWay(w *pb.Way) (sdk.Way, error) {
	var c conversion
	out := sdk.Way{
		Verdict:    sdk.Verdict(enum(int32(w.GetVerdict() - pb.Verdict_VERDICT_DROP))),
		To:         netip.AddrPortFrom(field(&c, "destination", w.GetTo(), decodeAddr), field(&c, "port", w.GetToPort(), port)),
		Masquerade: w.GetMasquerade(), Then: w.GetThen(), Steps: w.GetSteps(),
	}
	if c.err == nil && out.Verdict > sdk.Forward {
		c.err = fmt.Errorf("verdict %d", w.GetVerdict())
	}
	return out, c.err
}
