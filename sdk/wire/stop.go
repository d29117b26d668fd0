// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"google.golang.org/grpc"

	pb "github.com/pointsman/pointsman/sdk/wire/dataplanepb"
)

// Close lets go of the plugin and leaves it running. A child is still reaped when
// it ends.
func (r *Remote) Close() error {
	var err error
	r.closed.Do(func() {
		r.process.forget()
		err = r.conn.Close()
	})
	return err
}

// ErrStillThere is what Stop returns for a process that SIGKILL did not end in
// time: the kernel has it, in a system call that cannot be interrupted.
var ErrStillThere = errors.New("the process does not end")

// Stop ends the plugin: it asks, then sends SIGTERM, then SIGKILL, a second apart.
// What the plugin keeps in the kernel stays. It returns in little more than three
// seconds, at once if ctx ends before, and the process is reaped. The plugin of
// another host's session is left alone: ErrFenced.
func (r *Remote) Stop(ctx context.Context) error {
	err := r.shutdown(ctx)
	if errors.Is(err, ErrFenced) {
		return err
	}
	defer r.Close()
	defer r.handle.sweep()
	if err == nil && r.process.wait(ctx, time.Second) {
		return nil
	}
	r.process.kill(syscall.SIGTERM)
	if r.process.wait(ctx, time.Second) {
		return nil
	}
	r.process.kill(os.Kill)
	if r.process.wait(context.WithoutCancel(ctx), time.Second) {
		return nil
	}
	return fmt.Errorf("stop %s: %w", r.hello, ErrStillThere)
}

// Abort ends a plugin that hangs, by a signal: first by SIGQUIT, to which a program in Go
// answers with what each of its goroutines is at, and a second later by SIGKILL. It
// returns what the process printed past its log; nothing of one that is no child of this
// process. It takes little more than two seconds.
func (r *Remote) Abort() []string {
	for _, sig := range []os.Signal{syscall.SIGQUIT, os.Kill} {
		r.process.kill(sig)
		if r.process.wait(context.Background(), time.Second) {
			break
		}
	}
	return r.Exit().Stderr
}

// shutdown asks. Only one answer counts; of anything else the process tells.
func (r *Remote) shutdown(ctx context.Context) error {
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
	s.turn.stop(errors.New("the plugin shuts down"))
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	if _, done, err := s.turn.take(ctx, "Shutdown"); err == nil {
		done()
	}
}

// end asks whoever serves to stop. It may be called any number of times.
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
