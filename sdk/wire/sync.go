// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"errors"
	"io"
	"runtime/debug"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/pointsman/pointsman/sdk"
	pb "github.com/pointsman/pointsman/sdk/wire/dataplanepb"
)

// Sync sends the update in chunks, and returns what the plugin made of it.
func (r *Remote) Sync(ctx context.Context, u sdk.Update) (sdk.Result, error) {
	ctx, cancel := r.within(ctx, syncTimeout)
	defer cancel()
	var stream grpc.ClientStream // opened with the first chunk
	failed, err := sendUpdate(r.sessionID(), u, func(c *pb.UpdateChunk) (err error) {
		if stream == nil {
			stream, err = r.openSync(ctx, c.Last)
		}
		if err == nil {
			err = stream.SendMsg(c)
		}
		return err
	})
	if err == nil {
		err = stream.CloseSend()
	}
	if err != nil && !errors.Is(err, io.EOF) { // EOF: the plugin's answer says why
		return sdk.Result{}, r.callError("Sync", err)
	}
	result := sdk.Result{Failed: failed}
	if err := receiveResult(stream, &result); err != nil {
		return sdk.Result{}, r.callError("Sync", err)
	}
	return result, nil
}

// openSync opens the stream of an update. The generated client would do, but one
// that is told of a single chunk ends its half with it, a system call sooner; on
// the wire it is the same.
func (r *Remote) openSync(ctx context.Context, single bool) (grpc.ClientStream, error) {
	desc := &grpc.StreamDesc{StreamName: "Sync", ServerStreams: true, ClientStreams: !single}
	return r.conn.NewStream(ctx, desc, pb.Dataplane_Sync_FullMethodName)
}

func (s *server) Sync(stream grpc.BidiStreamingServer[pb.UpdateChunk, pb.ResultChunk]) error {
	in, err := receive(stream)
	if err != nil {
		return encodeStatus(err)
	}
	result, err := s.sync(stream.Context(), in)
	s.tidier.took(len(in.update.Set) + len(in.update.Delete))
	if err != nil {
		return encodeStatus(err)
	}
	large := in.update.Full && len(in.update.Set) >= much
	if err := sendResult(result, stream.Send); err != nil || !large {
		return err
	}
	s.tidier.tidy() // the host has its answer, and what that Full took on its way is garbage now
	return nil
}

// receive puts an update together. One that ends before its last chunk is an error, and has
// changed nothing.
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
	ctx, done, err := s.calls.acquire(ctx, "Sync")
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
	defer s.watchSync()()
	result, err := s.dataplane.Sync(ctx, in.update)
	if err != nil {
		return sdk.Result{}, because(ctx, err)
	}
	s.session.acknowledge(in.update.To)
	result.Failed = append(in.failed, result.Failed...)
	return result, nil
}

// sendResult sends r in as many messages as it takes, the last one marked.
func sendResult(r sdk.Result, send func(*pb.ResultChunk) error) error {
	c := newReply(send)
	for _, f := range r.Failed {
		if err := add(c, encodeFailure(f), func(m *pb.ResultChunk) *[]*pb.Failure { return &m.Failed }); err != nil {
			return err
		}
	}
	c.chunk.Last = true
	return send(c.chunk)
}

func encodeFailure(f sdk.Failure) *pb.Failure {
	if f.Err == nil {
		f.Err = errors.New("the dataplane does not say why (its Failure has no Err)")
	}
	return &pb.Failure{Name: encodeName(f.Name), Problem: encodeProblem(f.Err)}
}

func decodeFailure(f *pb.Failure) sdk.Failure {
	return sdk.Failure{Name: decodeName(f.GetName()), Err: decodeProblem(f.GetProblem())}
}

func receiveResult(stream grpc.ClientStream, result *sdk.Result) error {
	for taken := 0; ; {
		chunk := &pb.ResultChunk{}
		err := stream.RecvMsg(chunk)
		if errors.Is(err, io.EOF) {
			return errors.New("its answer was cut off")
		}
		if err != nil {
			return err
		}
		if taken += proto.Size(chunk); taken > maxAnswer {
			return tooMany("bytes", maxAnswer)
		}
		if err := addResult(result, chunk); err != nil {
			return err
		}
		if chunk.GetLast() {
			return nil
		}
	}
}

// addResult adds one chunk of an answer.
func addResult(r *sdk.Result, c *pb.ResultChunk) error {
	if len(r.Failed)+len(c.Failed) > maxFailures {
		return tooMany("failures", maxFailures)
	}
	for _, f := range c.Failed {
		r.Failed = append(r.Failed, decodeFailure(f))
	}
	return nil
}

// much is how many Services make what was needed to follow them worth a collection of its
// own.
const much = 1000

// tidyAfter is how long after that many Services memory is given back to the system: many
// more may follow, and one collection is enough for all of them.
const tidyAfter = 10 * time.Second

// A tidier gives memory back to the system once an update, or many small ones, have left
// much garbage. Go itself collects it when as much again has been made, and then keeps
// most of the pages: after a day of many changes a plugin held three times of what it
// needs.
type tidier struct {
	after time.Duration
	free  func()

	mu    sync.Mutex  // guards what follows
	count int         // Services since memory was given back
	most  int         // in one update: a collection costs as much as that is
	timer *time.Timer // until memory is given back; nil: it is not due
}

func newTidier() *tidier { return &tidier{after: tidyAfter, free: debug.FreeOSMemory} }

// took counts the Services of an update that is over, however it ended. It takes half of the
// largest update for a collection to be worth what it costs.
func (t *tidier) took(services int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.most = max(t.most, services)
	if t.count += services; t.count >= max(much, t.most/2) && t.timer == nil {
		t.timer = time.AfterFunc(t.after, t.tidy)
	}
}

// tidy gives memory back, now.
func (t *tidier) tidy() {
	t.stop()
	t.free()
}

// stop has memory given back no more for what was counted so far.
func (t *tidier) stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.timer != nil {
		t.timer.Stop()
	}
	t.count, t.timer = 0, nil
}
