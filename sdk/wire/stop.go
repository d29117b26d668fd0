// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc"

	pb "github.com/pointsman/pointsman/sdk/wire/dataplanepb"
)

// Close ends the connection and leaves the plugin running.
func (r *Remote) Close() error {
	var err error
	r.closed.Do(func() {
		r.release()
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
