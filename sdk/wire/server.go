// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/pointsman/pointsman/sdk"
	pb "github.com/pointsman/pointsman/sdk/wire/dataplanepb"
)

// A server is the plugin's end: what Serve and Local register with gRPC.
type server struct {
	pb.UnimplementedDataplaneServer
	pb.UnimplementedHelloServer

	description sdk.Description
	dataplane   sdk.Dataplane
	hello       Hello
	ring        *ring
	log         *slog.Logger
	turn        *turn
	session     session

	closing chan struct{} // closed by end
	ended   sync.Once
}

func newServer(d sdk.Description, dp sdk.Dataplane) *server {
	r := newRing(ringLines, ringBytes)
	return &server{
		description: d,
		dataplane:   dp,
		hello:       newHello(d.Name, d.Version),
		ring:        r,
		log:         slog.New(newRingHandler(r, logLevel())),
		turn:        newTurn(),
		closing:     make(chan struct{}),
	}
}

func (s *server) register(r grpc.ServiceRegistrar) {
	pb.RegisterHelloServer(r, s)
	pb.RegisterDataplaneServer(r, s)
}

// end asks whoever serves to stop. It may be called any number of times.
func (s *server) end() { s.ended.Do(func() { close(s.closing) }) }

// settle ends the present call, and waits for it no longer than d.
func (s *server) settle(d time.Duration) {
	s.turn.stop(errors.New("the plugin shuts down"))
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	if _, done, err := s.turn.take(ctx, "Shutdown"); err == nil {
		done()
	}
}

func (s *server) Hello(context.Context, *pb.HelloRequest) (*pb.HelloReply, error) {
	return encodeHello(s.hello), nil
}

func (s *server) Configure(ctx context.Context, r *pb.ConfigureRequest) (*pb.ConfigureReply, error) {
	if r.Session == "" {
		return nil, encodeStatus(errors.New("configure: the session has no id"))
	}
	s.turn.stop(ErrFenced)
	ctx, done, err := s.turn.take(ctx, "Configure")
	if err != nil {
		return nil, encodeStatus(err)
	}
	defer done()
	s.session.begin(r.Session)
	sysctls, err := decodeSysctls(r.Sysctls)
	if err != nil {
		return nil, encodeStatus(err)
	}
	d, err := s.dataplane.Configure(ctx, sdk.Setup{
		Options:  r.Options,
		StateDir: r.StateDir,
		Sysctls:  sysctls,
		Log:      s.log,
	})
	if err != nil {
		return nil, encodeStatus(because(ctx, err))
	}
	s.session.confirm()
	return &pb.ConfigureReply{Description: encodeDescription(d)}, nil
}

func (s *server) Sync(stream grpc.BidiStreamingServer[pb.UpdateChunk, pb.ResultChunk]) error {
	in, err := receive(stream)
	if err != nil {
		return encodeStatus(err)
	}
	result, err := s.sync(stream.Context(), in)
	if err != nil {
		return encodeStatus(err)
	}
	return sendResult(result, stream.Send)
}

// receive puts an update together. One that ends before its last chunk is an
// error, and has changed nothing.
func receive(stream grpc.BidiStreamingServer[pb.UpdateChunk, pb.ResultChunk]) (*incoming, error) {
	in := &incoming{}
	for {
		chunk, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil, errors.New("update was cut off before its last chunk; nothing was changed")
		}
		if err != nil {
			return nil, err
		}
		last, err := in.add(chunk)
		if err != nil || last {
			return in, err
		}
	}
}

func (s *server) sync(ctx context.Context, in *incoming) (sdk.Result, error) {
	ctx, done, err := s.turn.take(ctx, "Sync")
	if err != nil {
		return sdk.Result{}, err
	}
	defer done()
	if err := s.session.admit(in.session); err != nil {
		return sdk.Result{}, err
	}
	if err := s.session.follows(in.update); err != nil {
		return sdk.Result{}, err
	}
	result, err := s.dataplane.Sync(ctx, in.update)
	if err != nil {
		return sdk.Result{}, because(ctx, err)
	}
	s.session.acknowledge(in.update.To)
	result.Failed = append(in.failed, result.Failed...)
	return result, nil
}

func (s *server) SetRole(ctx context.Context, r *pb.SetRoleRequest) (*pb.SetRoleReply, error) {
	ctx, done, err := s.turn.take(ctx, "SetRole")
	if err != nil {
		return nil, encodeStatus(err)
	}
	defer done()
	if err := s.session.admit(r.Session); err != nil {
		return nil, encodeStatus(err)
	}
	role := sdk.Role(enum(int32(r.Role)))
	if !role.Known() {
		return nil, encodeStatus(&sdk.Refusal{Field: "role", Why: fmt.Sprintf("this plugin does not know %s", r.Role)})
	}
	if err := s.dataplane.SetRole(ctx, role); err != nil {
		return nil, encodeStatus(because(ctx, err))
	}
	s.session.setRole(role)
	return &pb.SetRoleReply{}, nil
}

func (s *server) Cleanup(r *pb.CleanupRequest, stream grpc.ServerStreamingServer[pb.CleanupReply]) error {
	ctx, done, err := s.turn.take(stream.Context(), "Cleanup")
	if err != nil {
		return encodeStatus(err)
	}
	defer done()
	if err := s.session.admitAny(r.Session); err != nil {
		return encodeStatus(err)
	}
	removed, err := s.dataplane.Cleanup(ctx, sdk.Leftovers{KubeProxy: r.KubeProxy, DryRun: r.DryRun})
	b := batch[string]{send: func(words []string) error { return stream.Send(&pb.CleanupReply{Removed: words}) }}
	for _, what := range removed {
		if sendErr := b.add(text(what), len(what)); sendErr != nil {
			return sendErr
		}
	}
	if flushErr := b.flush(); flushErr != nil {
		return flushErr
	}
	if err != nil {
		return encodeStatus(because(ctx, err))
	}
	return nil
}

func (s *server) Report(context.Context, *pb.ReportRequest) (*pb.ReportReply, error) {
	v := Vitals{Memory: memory(), LogDropped: s.ring.lost()}
	if r, ok := s.dataplane.(sdk.Reporter); ok {
		v.Report = r.Report()
	}
	v.Revision, v.Role = s.session.now()
	v.Call, v.CallFor, v.Overdue = s.turn.now()
	return encodeVitals(v), nil
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

func (s *server) Stuck(_ *pb.StuckRequest, stream grpc.ServerStreamingServer[pb.StuckReply]) error {
	sticky, ok := s.dataplane.(sdk.Sticky)
	if !ok {
		return encodeStatus(fmt.Errorf("stuck: %w", ErrUnsupported))
	}
	b := batch[*pb.Stick]{send: func(sticks []*pb.Stick) error { return stream.Send(&pb.StuckReply{Sticks: sticks}) }}
	err := sticky.Stuck(stream.Context(), func(stick sdk.Stick) error {
		out, err := encodeStick(stick)
		if err != nil {
			return fmt.Errorf("client %s of %s: %w", stick.Client, stick.Name, err)
		}
		return b.add(out, proto.Size(out))
	})
	if err != nil {
		return encodeStatus(err)
	}
	return b.flush()
}

func (s *server) Seed(stream grpc.ClientStreamingServer[pb.SeedChunk, pb.SeedReply]) error {
	sticky, ok := s.dataplane.(sdk.Sticky)
	if !ok {
		return encodeStatus(fmt.Errorf("seed: %w", ErrUnsupported))
	}
	id, sticks, err := receiveSticks(stream)
	if err != nil {
		return encodeStatus(err)
	}
	ctx, done, err := s.turn.take(stream.Context(), "Seed")
	if err != nil {
		return encodeStatus(err)
	}
	defer done()
	if err := s.session.admit(id); err != nil {
		return encodeStatus(err)
	}
	if err := sticky.Seed(ctx, sticks); err != nil {
		return encodeStatus(because(ctx, err))
	}
	return stream.SendAndClose(&pb.SeedReply{})
}

func receiveSticks(stream grpc.ClientStreamingServer[pb.SeedChunk, pb.SeedReply]) (session string, sticks []sdk.Stick, err error) {
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
			stick, err := decodeStick(s)
			if err != nil {
				return "", nil, fmt.Errorf("seed: %w", err)
			}
			sticks = append(sticks, stick)
		}
		if chunk.Last {
			return session, sticks, nil
		}
	}
}

func (s *server) Logs(r *pb.LogsRequest, stream grpc.ServerStreamingServer[pb.LogsReply]) error {
	reader := s.ring.reader(r.After)
	b := batch[*pb.LogLine]{send: func(lines []*pb.LogLine) error { return stream.Send(&pb.LogsReply{Lines: lines}) }}
	for {
		lines, more := reader.next(ringBatch)
		for _, l := range lines {
			out := encodeLine(l)
			if err := b.add(out, proto.Size(out)); err != nil {
				return err
			}
		}
		if err := b.flush(); err != nil {
			return err
		}
		if len(lines) > 0 {
			continue
		}
		select {
		case <-more:
		case <-s.closing:
			return nil
		case <-stream.Context().Done():
			return nil
		}
	}
}

// settleTime is how long Shutdown waits for the present call; the host waits a
// second for all of it.
const settleTime = 700 * time.Millisecond

func (s *server) Shutdown(_ context.Context, r *pb.ShutdownRequest) (*pb.ShutdownReply, error) {
	if r.Session != "" {
		if err := s.session.admitAny(r.Session); err != nil {
			return nil, encodeStatus(err)
		}
	}
	s.settle(settleTime)
	s.end()
	return &pb.ShutdownReply{}, nil
}

// because prefers the reason a call was interrupted for over the error that the
// dataplane made of it.
func because(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), ErrFenced) {
		return ErrFenced
	}
	return err
}
