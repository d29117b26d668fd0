// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/pointsman/pointsman/sdk"
	pb "github.com/pointsman/pointsman/sdk/wire/dataplanepb"
)

// Limits of calls whose context has no earlier deadline: long enough for a large cluster on a
// busy node. To detect a hung call earlier, call Vitals concurrently.
const (
	configureTimeout = 10 * time.Second
	syncTimeout      = 3 * time.Minute
	roleTimeout      = 2 * time.Minute
	cleanupTimeout   = 3 * time.Minute
	vitalsTimeout    = 2 * time.Second
	readTimeout      = 3 * time.Minute
	watchTimeout     = 15 * time.Minute
	debugTimeout     = 24 * time.Hour
)

// A Remote is a dataplane in another process. It implements [sdk.Dataplane], and is safe for
// concurrent use.
type Remote struct {
	conn     *grpc.ClientConn
	client   pb.DataplaneClient
	hello    Hello
	target   Target
	process  Process
	link     *link
	session  atomic.Value // ID (a string) of the session that the last Configure began
	closed   sync.Once
	debugged atomic.Bool
}

var (
	_ sdk.Dataplane       = (*Remote)(nil)
	_ sdk.Inspector       = (*Remote)(nil)
	_ sdk.Tracer          = (*Remote)(nil)
	_ sdk.Watcher         = (*Remote)(nil)
	_ sdk.AffinityCarrier = (*Remote)(nil)
)

// newRemote calls Hello on conn and returns its Remote. After an error it closes conn.
func newRemote(ctx context.Context, conn net.Conn, t Target, p Process) (*Remote, error) {
	client, err := newClientConn(conn, t.TLS)
	if err != nil {
		conn.Close()
		return nil, err
	}
	hello, err := callHello(ctx, client)
	if err != nil {
		client.Close()
		return nil, err
	}
	r := &Remote{conn: client, client: pb.NewDataplaneClient(client), hello: hello, target: t, process: p, link: followLink(client)}
	if p == nil {
		r.link.pid, _, _ = peerOf(conn) // zero if the system does not report it
		r.process = r.link
	}
	if pid := r.process.PID(); pid != 0 {
		r.hello.PID = pid // trust the kernel, not the plugin
	}
	return r, nil
}

// Hello returns the plugin's answer to Hello.
func (r *Remote) Hello() Hello { return r.hello }

// Target returns the address at which the plugin listens.
func (r *Remote) Target() Target { return r.target }

// Exited returns a channel that is closed when the plugin's process has ended.
func (r *Remote) Exited() <-chan struct{} { return r.process.Exited() }

// Ending describes how the process ended, without the subject: "exited with code 2". Call it
// after Exited is closed.
func (r *Remote) Ending() string { return r.process.Ending() }

// Lost returns a channel that is closed when the connection to the plugin is lost. There is no
// reconnect.
func (r *Remote) Lost() <-chan struct{} { return r.link.lost }

// Configure begins a session. From then on, calls of older sessions are refused.
func (r *Remote) Configure(ctx context.Context, s sdk.Setup) (d sdk.Description, err error) {
	id := rand.Text()
	r.session.Store(id)
	err = r.call(ctx, "Configure", configureTimeout, func(ctx context.Context) error {
		reply, err := r.client.Configure(ctx, &pb.ConfigureRequest{Session: id, Options: s.Options, StateDir: s.StateDir})
		d = decodeDescription(reply.GetDescription())
		return err
	})
	return d, err
}

// Debugged allows each later call a day, because a debugger may stop the process during the
// call. Vitals keeps its two seconds, so that a caller can detect that the process is stopped.
func (r *Remote) Debugged() { r.debugged.Store(true) }

// call runs f with the limit longest.
func (r *Remote) call(ctx context.Context, name string, longest time.Duration, f func(context.Context) error) error {
	if r.debugged.Load() {
		longest = debugTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	return r.callError(name, f(ctx))
}

// Sync sends the update in chunks and returns the plugin's result.
func (r *Remote) Sync(ctx context.Context, u sdk.Update) (result sdk.Result, err error) {
	err = r.call(ctx, "Sync", syncTimeout, func(ctx context.Context) error {
		stream, err := r.client.Sync(ctx)
		if err != nil {
			return err
		}
		result.Failed, err = sendUpdate(r.sessionID(), u, stream.Send)
		if err == nil {
			err = stream.CloseSend()
		}
		if err != nil && !errors.Is(err, io.EOF) { // EOF: the plugin's answer says why
			return err
		}
		return receive(maxFailures, (*pb.ResultChunk).GetFailed, decodeFailure, collect(&result.Failed))(stream, nil)
	})
	if err != nil {
		return sdk.Result{}, err
	}
	return result, nil
}

// SetRole implements sdk.Dataplane.
func (r *Remote) SetRole(ctx context.Context, role sdk.Role) error {
	return r.call(ctx, "SetRole", roleTimeout, func(ctx context.Context) error {
		_, err := r.client.SetRole(ctx, &pb.SetRoleRequest{Session: r.sessionID(), Role: pb.Role(role)})
		return err
	})
}

// Cleanup implements sdk.Dataplane. After an error it still returns what was removed.
func (r *Remote) Cleanup(ctx context.Context, l sdk.Leftovers) (removed []string, err error) {
	err = r.call(ctx, "Cleanup", cleanupTimeout, func(ctx context.Context) error {
		decode := func(what string) (string, error) { return Printable(what), nil }
		request := &pb.CleanupRequest{Session: r.sessionID(), KubeProxy: l.KubeProxy, DryRun: l.DryRun}
		return receive(maxRemoved, (*pb.CleanupReply).GetRemoved, decode, collect(&removed))(r.client.Cleanup(ctx, request))
	})
	return removed, err
}

// Inspect implements sdk.Inspector, or returns ErrUnsupported.
func (r *Remote) Inspect(ctx context.Context, f func(sdk.Served) error) error {
	return r.call(ctx, "Inspect", readTimeout, func(ctx context.Context) error {
		return receive(math.MaxInt, (*pb.InspectReply).GetServed, decodeServed, f)(r.client.Inspect(ctx, &pb.InspectRequest{}))
	})
}

// Trace implements sdk.Tracer, or returns ErrUnsupported.
func (r *Remote) Trace(ctx context.Context, p sdk.Packet) (traced sdk.Traced, err error) {
	err = r.call(ctx, "Trace", readTimeout, func(ctx context.Context) error {
		reply, err := r.client.Trace(ctx, encodePacket(p))
		if err == nil {
			traced, err = decodeTraced(reply)
		}
		return err
	})
	return traced, err
}

// Watch implements sdk.Watcher, or returns ErrUnsupported. It ends after watchTimeout at the latest.
func (r *Remote) Watch(ctx context.Context, p sdk.Packet, f func(sdk.WatchedPacket) error) error {
	request := &pb.WatchRequest{}
	if p.To.IsValid() {
		request.Packet = encodePacket(p)
	}
	err := r.call(ctx, "Watch", watchTimeout, func(ctx context.Context) error {
		one := func(m *pb.WatchReply) []*pb.WatchReply { return []*pb.WatchReply{m} }
		return receive(math.MaxInt, one, decodeWatched, f)(r.client.Watch(ctx, request))
	})
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// ExportAffinity implements sdk.AffinityCarrier, or returns ErrUnsupported.
func (r *Remote) ExportAffinity(ctx context.Context, f func(sdk.AffinityEntry) error) error {
	return r.call(ctx, "ExportAffinity", readTimeout, func(ctx context.Context) error {
		return receive(maxAffinityEntries, (*pb.ExportAffinityReply).GetEntries, decodeAffinityEntry, f)(r.client.ExportAffinity(ctx, &pb.ExportAffinityRequest{}))
	})
}

// ImportAffinity implements sdk.AffinityCarrier, or returns ErrUnsupported.
func (r *Remote) ImportAffinity(ctx context.Context, entries []sdk.AffinityEntry) error {
	return r.call(ctx, "ImportAffinity", readTimeout, func(ctx context.Context) error {
		stream, err := r.client.ImportAffinity(ctx)
		if err != nil {
			return err
		}
		c := newReply(stream.Send)
		c.chunk.Session = r.sessionID() // the first chunk has the session for all chunks
		for _, entry := range entries {
			if err = add(c, encodeAffinityEntry(entry), func(m *pb.ImportAffinityChunk) *[]*pb.AffinityEntry { return &m.Entries }); err != nil {
				break
			}
		}
		if err == nil {
			err = c.send(c.chunk)
		}
		if err != nil && !errors.Is(err, io.EOF) { // EOF: the plugin's answer says why
			return err
		}
		_, err = stream.CloseAndRecv()
		return err
	})
}

// Preflight runs the plugin's verb check with these options, and returns its answer as JSON.
func (r *Remote) Preflight(ctx context.Context, options []byte) (answer []byte, err error) {
	err = r.call(ctx, "Preflight", readTimeout, func(ctx context.Context) error {
		reply, err := r.client.Preflight(ctx, &pb.PreflightRequest{Options: options})
		answer = reply.GetAnswer()
		return err
	})
	return answer, err
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

// Shutdown asks the plugin to end, and returns within a second, before the process has ended:
// see Exited. Rules in the kernel stay. If the plugin is in another host's session, it
// continues, and the error is ErrFenced.
func (r *Remote) Shutdown(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, err := r.client.Shutdown(ctx, &pb.ShutdownRequest{Session: r.sessionID()})
	return decodeStatus(err)
}

func (r *Remote) sessionID() string {
	id, _ := r.session.Load().(string) // empty if there is no session
	return id
}

// exitNotice is the longest time between the end of the connection and the notice that the
// process has ended.
const exitNotice = 500 * time.Millisecond

// callError returns err for the caller: an error of the plugin is unchanged, and an error of
// the transport gets the reason if the process has ended.
func (r *Remote) callError(call string, err error) error {
	if err == nil {
		return nil
	}
	code := status.Code(err)
	if code == codes.Unavailable || code == codes.Canceled {
		select {
		case <-r.process.Exited():
			return fmt.Errorf("%s: %s %s", call, r.hello, r.process.Ending())
		case <-time.After(exitNotice):
		}
	}
	err = decodeStatus(err)
	if _, own := errors.AsType[*remoteError](err); own && code != codes.DeadlineExceeded && code != codes.Canceled {
		return err
	}
	return fmt.Errorf("%s: %s: %w", call, r.hello, err)
}

// receive returns a function that takes the results of a call. It calls f for each item in the messages of the stream,
// until the stream ends properly.
func receive[M, P, V any](most int, items func(*M) []P, decode func(P) (V, error), f func(V) error) func(grpc.ServerStreamingClient[M], error) error {
	return func(stream grpc.ServerStreamingClient[M], err error) error {
		if err != nil {
			return err
		}
		many, size := 0, 0
		return eachChunk(stream, func(m *M) error {
			many, size = many+len(items(m)), size+proto.Size(any(m).(proto.Message))
			if many > most || size > maxAnswer && most < math.MaxInt {
				return fmt.Errorf("it answers with more than %d items or %d bytes", most, maxAnswer)
			}
			for _, item := range items(m) {
				v, err := decode(item)
				if err != nil {
					return err
				}
				if err := f(v); err != nil {
					return err
				}
			}
			return nil
		})
	}
}

// collect returns a function that appends to a list.
func collect[V any](to *[]V) func(V) error {
	return func(v V) error {
		*to = append(*to, v)
		return nil
	}
}

// A Process is the process behind a Remote, as known to the code that started or found it. A
// call that fails because the process has ended reports that, and how it ended.
type Process interface {
	PID() int                // zero if not known
	Exited() <-chan struct{} // closed when it has ended
	Ending() string          // how it ended, without the subject: "exited with code 2"; called after Exited is closed
}

// A link is a connection to a plugin. It also implements Process for a plugin whose process is
// not known otherwise.
type link struct {
	pid    int           // of the process at the other end; zero if not known
	lost   chan struct{} // closed when the connection is lost
	cancel context.CancelFunc
}

// followLink starts a goroutine that watches the connection. It ends with the connection, or
// when cancel is called.
func followLink(conn *grpc.ClientConn) *link {
	ctx, cancel := context.WithCancel(context.Background())
	l := &link{lost: make(chan struct{}), cancel: cancel}
	go func() {
		// The first call may succeed slightly before gRPC leaves the state Connecting.
		for state := conn.GetState(); state == connectivity.Ready || state == connectivity.Connecting; state = conn.GetState() {
			if !conn.WaitForStateChange(ctx, state) {
				return
			}
		}
		close(l.lost)
	}()
	return l
}

func (l *link) PID() int                { return l.pid }
func (l *link) Exited() <-chan struct{} { return l.lost }
func (*link) Ending() string {
	return "ended, as far as can be seen from here: the connection to it was lost"
}
