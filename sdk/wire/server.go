// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc"

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
	log         *slog.Logger
	lost        func() uint64 // log lines that were dropped
	calls       *semaphore
	tidier      *tidier
	session     session
	preflight   func(ctx context.Context, options []byte) (answer []byte, err error) // nil: it is none of a process of its own

	closing chan struct{} // closed by end
	ended   sync.Once
}

// newServer returns a server whose log goes nowhere until logTo.
func newServer(d sdk.Description, dp sdk.Dataplane) *server {
	return &server{
		description: d,
		dataplane:   dp,
		hello:       newHello(d.Name, d.Version),
		log:         slog.New(slog.DiscardHandler),
		lost:        func() uint64 { return 0 },
		calls:       newSemaphore(),
		tidier:      newTidier(),
		closing:     make(chan struct{}),
	}
}

func (s *server) Hello(context.Context, *pb.HelloRequest) (*pb.HelloReply, error) {
	return encodeHello(s.hello), nil
}

func (s *server) Configure(ctx context.Context, r *pb.ConfigureRequest) (*pb.ConfigureReply, error) {
	if r.Session == "" {
		return nil, encodeStatus(errors.New("configure: the session has no id"))
	}
	s.calls.interrupt(ErrFenced)
	ctx, done, err := s.calls.acquire(ctx, "Configure")
	if err != nil {
		return nil, encodeStatus(err)
	}
	defer done()
	s.session.begin(r.Session, connectionOf(ctx))
	d, err := s.dataplane.Configure(ctx, sdk.Setup{
		Options:  r.Options,
		StateDir: r.StateDir,
		Gone:     s.session.hostGone,
		Log:      s.log,
	})
	if err != nil {
		return nil, encodeStatus(because(ctx, err))
	}
	if err := checkDescription(d); err != nil {
		return nil, encodeStatus(err)
	}
	s.session.confirm()
	return &pb.ConfigureReply{Description: encodeDescription(d)}, nil
}

func (s *server) SetRole(ctx context.Context, r *pb.SetRoleRequest) (*pb.SetRoleReply, error) {
	ctx, done, err := s.calls.acquire(ctx, "SetRole")
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
	ctx, done, err := s.calls.acquire(stream.Context(), "Cleanup")
	if err != nil {
		return encodeStatus(err)
	}
	defer done()
	if err := s.session.admitAny(r.Session); err != nil && !r.DryRun { // which changes nothing
		return encodeStatus(err)
	}
	removed, err := s.dataplane.Cleanup(ctx, sdk.Leftovers{KubeProxy: r.KubeProxy, DryRun: r.DryRun})
	c := newReply(stream.Send)
	for _, what := range removed {
		if err := c.room(len(what)); err != nil {
			return err
		}
		c.chunk.Removed = append(c.chunk.Removed, text(what))
	}
	if err := c.flush(); err != nil {
		return err
	}
	return encodeStatus(because(ctx, err))
}

func (s *server) register(r grpc.ServiceRegistrar) {
	pb.RegisterHelloServer(r, s)
	pb.RegisterDataplaneServer(r, s)
}

// because prefers the reason a call was interrupted for over the error that the
// dataplane made of it, if any.
func because(ctx context.Context, err error) error {
	if err != nil && errors.Is(context.Cause(ctx), ErrFenced) {
		return ErrFenced
	}
	return err
}

// Close ends the connection and leaves the plugin running.
func (r *Remote) Close() error {
	var err error
	r.closed.Do(func() {
		r.link.cancel()
		err = r.conn.Close()
	})
	return err
}

// Shutdown asks the plugin to end, and returns within a second, before it has: see
// Exited. What the plugin keeps in the kernel stays. The plugin of another host's session
// goes on: ErrFenced.
func (r *Remote) Shutdown(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, err := r.client.Shutdown(ctx, &pb.ShutdownRequest{Session: r.sessionID()})
	if err == nil {
		return nil
	}
	return decodeStatus(err)
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

// settle ends the present call, and waits for it no longer than d.
func (s *server) settle(d time.Duration) {
	s.calls.interrupt(errors.New("the plugin shuts down"))
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	if _, done, err := s.calls.acquire(ctx, "Shutdown"); err == nil {
		done()
	}
}

// end has the server stop. It may be called any number of times.
func (s *server) end() {
	s.ended.Do(func() {
		s.tidier.stop()
		close(s.closing)
	})
}

// stopWhenEnded ends g once the server is to end: gently, and if that takes
// longer than a moment, not.
func (s *server) stopWhenEnded(g *grpc.Server) {
	<-s.closing
	timer := time.AfterFunc(300*time.Millisecond, g.Stop)
	defer timer.Stop()
	g.GracefulStop()
}
