// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/pointsman/pointsman/sdk"
	pb "github.com/pointsman/pointsman/sdk/wire/dataplanepb"
)

// A server is the plugin's side: the services that Serve and Local register with gRPC.
type server struct {
	pb.UnimplementedDataplaneServer
	pb.UnimplementedHelloServer

	description sdk.Description
	dataplane   sdk.Dataplane
	hello       *pb.HelloReply
	log         *slog.Logger
	lost        func() uint64 // returns the number of dropped log lines
	calls       *semaphore
	updated     atomic.Int64 // Services in updates since memory was last returned to the system
	freeing     atomic.Bool  // memory is about to be returned
	session     session

	closing chan struct{} // closed by end
	ended   sync.Once
}

// newServer returns a server that discards its log. The caller may replace log and lost.
func newServer(d sdk.Description, dp sdk.Dataplane) *server {
	return &server{
		description: d,
		dataplane:   dp,
		hello:       &pb.HelloReply{Name: Printable(d.Name), Version: Printable(d.Version), Majors: []uint32{Major}, Pid: int64(os.Getpid())},
		log:         slog.New(slog.DiscardHandler),
		lost:        func() uint64 { return 0 },
		calls:       newSemaphore(),
		closing:     make(chan struct{}),
	}
}

func (s *server) Hello(context.Context, *pb.HelloRequest) (*pb.HelloReply, error) {
	return s.hello, nil
}

// exclusive runs a call that no other call may overlap, if admit allows it.
func (s *server) exclusive(ctx context.Context, name string, admit func() error, f func(context.Context) error) error {
	ctx, done, err := s.calls.acquire(ctx, name)
	if err != nil {
		return err
	}
	defer done()
	if err := admit(); err != nil {
		return err
	}
	if err = f(ctx); err != nil && errors.Is(context.Cause(ctx), ErrFenced) {
		return ErrFenced // the reason, in place of the dataplane's error
	}
	return err
}

// admits returns a function that checks that a call belongs to the current session.
func (s *server) admits(id string) func() error { return func() error { return s.session.admit(id) } }

func (s *server) Configure(ctx context.Context, r *pb.ConfigureRequest) (reply *pb.ConfigureReply, err error) {
	if r.Session == "" {
		return nil, errors.New("configure: the session has no id")
	}
	s.calls.interrupt(ErrFenced)
	begin := func() error { s.session.begin(r.Session, connectionOf(ctx)); return nil }
	err = s.exclusive(ctx, "Configure", begin, func(ctx context.Context) error {
		d, err := s.dataplane.Configure(ctx, sdk.Setup{Options: r.Options, StateDir: r.StateDir, Gone: s.session.hostGone, Log: s.log})
		if err != nil {
			return err
		}
		s.session.update(func() { s.session.configured = true })
		reply = &pb.ConfigureReply{Description: encodeDescription(d)}
		return nil
	})
	return reply, err
}

// Sync applies the update at the end of the stream. A stream that is cut off changes nothing.
func (s *server) Sync(stream grpc.BidiStreamingServer[pb.UpdateChunk, pb.ResultChunk]) error {
	in := &incoming{}
	if err := eachChunk(stream, in.add); err != nil {
		return err
	}
	if !in.headed {
		return errors.New("update: it has no head")
	}
	var result sdk.Result
	err := s.exclusive(stream.Context(), "Sync", s.admits(in.session), func(ctx context.Context) (err error) {
		if err = s.session.follows(in.update); err != nil {
			return err
		}
		if result, err = s.dataplane.Sync(ctx, in.update); err == nil {
			s.session.update(func() { s.session.begun, s.session.revision = true, in.update.To })
		}
		return err
	})
	s.freeMemory(len(in.update.Set) + len(in.update.Delete))
	if err != nil {
		return err
	}
	c := newReply(stream.Send)
	for _, f := range append(in.failed, result.Failed...) {
		if err := add(c, encodeFailure(f), func(m *pb.ResultChunk) *[]*pb.Failure { return &m.Failed }); err != nil {
			return err
		}
	}
	return c.flush()
}

// eachChunk calls add for each message from the other side, until the end of the stream.
func eachChunk[M any](stream interface{ Recv() (*M, error) }, add func(*M) error) error {
	for {
		chunk, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = add(chunk)
		}
		if err != nil {
			return err
		}
	}
}

func (s *server) SetRole(ctx context.Context, r *pb.SetRoleRequest) (*pb.SetRoleReply, error) {
	return &pb.SetRoleReply{}, s.exclusive(ctx, "SetRole", s.admits(r.Session), func(ctx context.Context) error {
		role := sdk.Role(enum(r.Role))
		if !role.Known() {
			return &sdk.Refusal{Field: "role", Why: fmt.Sprintf("this plugin does not know %s", r.Role)}
		}
		if err := s.dataplane.SetRole(ctx, role); err != nil {
			return err
		}
		s.session.update(func() { s.session.role = role })
		return nil
	})
}

func (s *server) Cleanup(r *pb.CleanupRequest, stream grpc.ServerStreamingServer[pb.CleanupReply]) error {
	admit := func() error { return s.session.admitAny(r.Session) }
	if r.DryRun { // changes nothing
		admit = func() error { return nil }
	}
	return s.exclusive(stream.Context(), "Cleanup", admit, func(ctx context.Context) error {
		removed, err := s.dataplane.Cleanup(ctx, sdk.Leftovers{KubeProxy: r.KubeProxy, DryRun: r.DryRun})
		for _, what := range removed {
			if err := stream.Send(&pb.CleanupReply{Removed: []string{Printable(what)}}); err != nil {
				return err
			}
		}
		return err
	})
}

func (s *server) Report(context.Context, *pb.ReportRequest) (*pb.ReportReply, error) {
	v := Vitals{Memory: memory(), LogDropped: s.lost()}
	if r, ok := s.dataplane.(sdk.Reporter); ok {
		v.Report = r.Report()
	}
	v.Revision, v.Role = s.session.now()
	v.Call, v.CallFor, v.Overdue = s.calls.current()
	return encodeVitals(v), nil
}

// optional returns the dataplane as an optional interface, or ErrUnsupported.
func optional[T any](s *server) (T, error) {
	if has, ok := s.dataplane.(T); ok {
		return has, nil
	}
	return *new(T), ErrUnsupported
}

func (s *server) Inspect(_ *pb.InspectRequest, stream grpc.ServerStreamingServer[pb.InspectReply]) error {
	inspector, err := optional[sdk.Inspector](s)
	if err != nil {
		return err
	}
	c := newReply(stream.Send)
	err = inspector.Inspect(stream.Context(), func(served sdk.Served) error {
		return add(c, encodeServed(served), func(m *pb.InspectReply) *[]*pb.Served { return &m.Served })
	})
	return errors.Join(err, c.flush())
}

func (s *server) Trace(ctx context.Context, in *pb.TraceRequest) (*pb.TraceReply, error) {
	tracer, err := optional[sdk.Tracer](s)
	if err != nil {
		return nil, err
	}
	p, err := decodePacket(in)
	if err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	traced, err := tracer.Trace(ctx, p)
	return encodeTraced(traced), err
}

func (s *server) Watch(in *pb.WatchRequest, stream grpc.ServerStreamingServer[pb.WatchReply]) error {
	watcher, err := optional[sdk.Watcher](s)
	if err != nil {
		return err
	}
	var p sdk.Packet
	if in.Packet != nil {
		if p, err = decodePacket(in.Packet); err != nil {
			return fmt.Errorf("watch: %w", err)
		}
	}
	return watcher.Watch(stream.Context(), p, func(d sdk.WatchedPacket) error { return stream.Send(encodeWatched(d)) })
}

func (s *server) ExportAffinity(_ *pb.ExportAffinityRequest, stream grpc.ServerStreamingServer[pb.ExportAffinityReply]) error {
	carrier, err := optional[sdk.AffinityCarrier](s)
	if err != nil {
		return err
	}
	c := newReply(stream.Send)
	err = carrier.ExportAffinity(stream.Context(), func(entry sdk.AffinityEntry) error {
		return add(c, encodeAffinityEntry(entry), func(m *pb.ExportAffinityReply) *[]*pb.AffinityEntry { return &m.Entries })
	})
	return errors.Join(err, c.flush())
}

func (s *server) ImportAffinity(stream grpc.ClientStreamingServer[pb.ImportAffinityChunk, pb.ImportAffinityReply]) error {
	carrier, err := optional[sdk.AffinityCarrier](s)
	if err != nil {
		return err
	}
	session, entries := "", []sdk.AffinityEntry(nil)
	err = eachChunk(stream, func(chunk *pb.ImportAffinityChunk) error {
		session = cmp.Or(session, chunk.Session)
		for _, e := range chunk.Entries {
			entry, err := decodeAffinityEntry(e)
			if err != nil {
				return fmt.Errorf("import affinity: %w", err)
			}
			entries = append(entries, entry)
		}
		return nil
	})
	if err == nil {
		err = s.exclusive(stream.Context(), "ImportAffinity", s.admits(session), func(ctx context.Context) error { return carrier.ImportAffinity(ctx, entries) })
	}
	if err != nil {
		return err
	}
	return stream.SendAndClose(&pb.ImportAffinityReply{})
}

func (s *server) Preflight(ctx context.Context, r *pb.PreflightRequest) (*pb.PreflightReply, error) {
	answer, err := preflight(ctx, r.Options)
	if err != nil {
		return nil, fmt.Errorf("run the verb check: %w", err)
	}
	return &pb.PreflightReply{Answer: answer}, nil
}

func (s *server) register(r grpc.ServiceRegistrar) {
	pb.RegisterHelloServer(r, s)
	pb.RegisterDataplaneServer(r, s)
}

// settleTime is how long Shutdown waits for the current call. The host waits one second for the
// whole Shutdown.
const settleTime = 700 * time.Millisecond

func (s *server) Shutdown(_ context.Context, r *pb.ShutdownRequest) (*pb.ShutdownReply, error) {
	if r.Session != "" {
		if err := s.session.admitAny(r.Session); err != nil {
			return nil, err
		}
	}
	s.stop()
	return &pb.ShutdownReply{}, nil
}

// stop interrupts the current call, waits for it for at most settleTime, and stops the server.
func (s *server) stop() {
	s.calls.interrupt(errors.New("the plugin shuts down"))
	ctx, cancel := context.WithTimeout(context.Background(), settleTime)
	defer cancel()
	if _, done, err := s.calls.acquire(ctx, "Shutdown"); err == nil {
		done()
	}
	s.end()
}

// end stops the server. It may be called several times.
func (s *server) end() { s.ended.Do(func() { close(s.closing) }) }

// After updates with this many Services, and some delay, freed memory is returned to the
// system. Go itself collects garbage only when the heap has doubled, and then keeps most of the
// pages: after a day with many changes a plugin held three times the memory it needed. One
// collection covers all changes in that time.
const (
	freeServices = 1000
	freeDelay    = 10 * time.Second
)

// freeMemory counts the Services of a finished update, successful or not.
func (s *server) freeMemory(services int) {
	if s.updated.Add(int64(services)) >= freeServices && s.freeing.CompareAndSwap(false, true) {
		time.AfterFunc(freeDelay, func() {
			s.updated.Store(0)
			s.freeing.Store(false)
			debug.FreeOSMemory()
		})
	}
}

// stopWhenEnded stops g when the server ends: gracefully, or forcibly if that takes too long.
func (s *server) stopWhenEnded(g *grpc.Server) {
	<-s.closing
	timer := time.AfterFunc(300*time.Millisecond, g.Stop)
	defer timer.Stop()
	g.GracefulStop()
}
