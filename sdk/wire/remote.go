// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
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

// The longest a call may take where its context does not say less: long enough for
// a large cluster on a node with much else to do. A caller that wants to know sooner that one
// hangs reads Vitals beside it.
const (
	configureTimeout = 10 * time.Second
	syncTimeout      = 3 * time.Minute
	roleTimeout      = 2 * time.Minute
	cleanupTimeout   = 3 * time.Minute
	vitalsTimeout    = 2 * time.Second
	readTimeout      = 3 * time.Minute
	debugTimeout     = 24 * time.Hour
)

// A Remote is a dataplane in another process. It is what [sdk.Dataplane] says,
// and may be used from several goroutines.
type Remote struct {
	conn     *grpc.ClientConn
	client   pb.DataplaneClient
	hello    Hello
	target   Target
	process  Process
	link     *link
	session  atomic.Pointer[string] // of the last Configure; nil: none
	closed   sync.Once
	debugged atomic.Bool
}

var (
	_ sdk.Dataplane       = (*Remote)(nil)
	_ sdk.Inspector       = (*Remote)(nil)
	_ sdk.Tracer          = (*Remote)(nil)
	_ sdk.AffinityCarrier = (*Remote)(nil)
)

// meet greets the plugin at the other end of conn, which it closes with an error.
func meet(ctx context.Context, conn net.Conn, t Target, p Process) (*Remote, error) {
	client, err := speak(conn, t.TLS)
	if err != nil {
		conn.Close()
		return nil, err
	}
	hello, err := greet(ctx, client)
	if err != nil {
		client.Close()
		return nil, err
	}
	r := &Remote{conn: client, client: pb.NewDataplaneClient(client), hello: hello, target: t, process: p, link: followLink(client)}
	if p == nil {
		r.link.peer, _ = peerOf(conn) // zero where the system does not say
		r.process = r.link
	}
	if pid := r.process.PID(); pid != 0 {
		r.hello.PID = pid // the kernel's word, not the plugin's
	}
	return r, nil
}

// Hello returns what the plugin said of itself when it was connected to.
func (r *Remote) Hello() Hello { return r.hello }

// Target returns where the plugin listens.
func (r *Remote) Target() Target { return r.target }

// Exited is closed when the plugin's process has ended.
func (r *Remote) Exited() <-chan struct{} { return r.process.Exited() }

// Ending says how the process ended, without the subject: "exited with code 2". It is asked once Exited is closed.
func (r *Remote) Ending() string { return r.process.Ending() }

// Lost is closed when the connection to the plugin is lost. It is not made again.
func (r *Remote) Lost() <-chan struct{} { return r.link.lost }

// Configure begins a session: from here on, calls of every older one are refused.
func (r *Remote) Configure(ctx context.Context, s sdk.Setup) (sdk.Description, error) {
	ctx, cancel := r.within(ctx, configureTimeout)
	defer cancel()
	id := rand.Text()
	r.session.Store(&id)
	reply, err := r.client.Configure(ctx, &pb.ConfigureRequest{
		Session:  id,
		Options:  s.Options,
		StateDir: s.StateDir,
	})
	if err != nil {
		return sdk.Description{}, r.callError("Configure", err)
	}
	return decodeDescription(reply.GetDescription()), nil
}

// Debugged gives each call that begins from here on a day, since a debugger may stop the process
// in the middle of one. Vitals keeps its two seconds: it is how a caller sees that it is stopped.
func (r *Remote) Debugged() { r.debugged.Store(true) }

// within bounds a call by the longest that it may take.
func (r *Remote) within(ctx context.Context, longest time.Duration) (context.Context, context.CancelFunc) {
	if r.debugged.Load() {
		longest = debugTimeout
	}
	return context.WithTimeout(ctx, longest)
}

// SetRole is as sdk.Dataplane says.
func (r *Remote) SetRole(ctx context.Context, role sdk.Role) error {
	ctx, cancel := r.within(ctx, roleTimeout)
	defer cancel()
	_, err := r.client.SetRole(ctx, &pb.SetRoleRequest{Session: r.sessionID(), Role: pb.Role(role)})
	return r.callError("SetRole", err)
}

// Cleanup is as sdk.Dataplane says. With an error it still names what was removed.
func (r *Remote) Cleanup(ctx context.Context, l sdk.Leftovers) ([]string, error) {
	ctx, cancel := r.within(ctx, cleanupTimeout)
	defer cancel()
	stream, err := r.client.Cleanup(ctx, &pb.CleanupRequest{Session: r.sessionID(), KubeProxy: l.KubeProxy, DryRun: l.DryRun})
	if err != nil {
		return nil, r.callError("Cleanup", err)
	}
	var removed []string
	taken := 0
	err = receiveAll(stream, func(reply *pb.CleanupReply) error {
		if taken += proto.Size(reply); taken > maxAnswer {
			return tooMany("bytes", maxAnswer)
		}
		if len(removed)+len(reply.GetRemoved()) > maxRemoved {
			return tooMany("lines", maxRemoved)
		}
		for _, what := range reply.GetRemoved() {
			removed = append(removed, text(what))
		}
		return nil
	})
	return removed, r.callError("Cleanup", err)
}

func (r *Remote) sessionID() string {
	if id := r.session.Load(); id != nil {
		return *id
	}
	return ""
}

// exitNotice is how much later than the end of its connection the end of a process may
// become known.
const exitNotice = 500 * time.Millisecond

// A callerError is one of the caller's own function, which is given back as it was.
type callerError struct{ error }

// callError is err as the caller is to read it: the plugin's own error as it was, the
// transport's with the reason if the process has ended.
func (r *Remote) callError(call string, err error) error {
	if err == nil {
		return nil
	}
	if own, ok := err.(callerError); ok {
		return own.error
	}
	code := status.Code(err)
	if (code == codes.Unavailable || code == codes.Canceled) && r.ended(context.Background(), exitNotice) {
		return fmt.Errorf("%s: %s %s", call, r.hello, r.process.Ending())
	}
	err = decodeStatus(err)
	var remote *remoteError
	var refusal *sdk.Refusal
	if errors.As(err, &refusal) || errors.As(err, &remote) && code != codes.DeadlineExceeded && code != codes.Canceled {
		return err
	}
	return fmt.Errorf("%s: %s: %w", call, r.hello, err)
}

// receiveAll calls f for each message until the stream's orderly end.
func receiveAll[M any](stream grpc.ServerStreamingClient[M], f func(*M) error) error {
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := f(m); err != nil {
			return err
		}
	}
}

// A Process is the process behind a Remote, as the code that started or found it sees it. A
// call that fails because the process has ended says so, and how it ended.
type Process interface {
	PID() int                // zero: not known
	Exited() <-chan struct{} // closed when it has ended
	Ending() string          // how it ended, without the subject: "exited with code 2"; asked once Exited is closed
}

// ended reports whether the process has ended, after waiting for that at most d and no
// longer than ctx.
func (r *Remote) ended(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-r.process.Exited():
	case <-timer.C:
	case <-ctx.Done():
	}
	select {
	case <-r.process.Exited():
		return true
	default:
		return false
	}
}

// A link is a connection to a plugin. It is also the Process of a plugin of which nothing else is known.
type link struct {
	peer   peer          // at the other end; its pid is zero where that is not known
	lost   chan struct{} // closed when the connection is lost
	cancel context.CancelFunc
}

// followLink starts a goroutine that ends with the connection, or when cancel is called.
func followLink(conn *grpc.ClientConn) *link {
	ctx, cancel := context.WithCancel(context.Background())
	l := &link{lost: make(chan struct{}), cancel: cancel}
	go func() {
		for state := connectivity.Ready; state == connectivity.Ready; state = conn.GetState() {
			if !conn.WaitForStateChange(ctx, state) {
				return
			}
		}
		close(l.lost)
	}()
	return l
}

func (l *link) PID() int                { return l.peer.pid }
func (l *link) Exited() <-chan struct{} { return l.lost }
func (*link) Ending() string {
	return "ended, as far as can be seen from here: the connection to it was lost"
}
