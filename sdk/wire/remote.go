// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/pointsman/pointsman/sdk"
	pb "github.com/pointsman/pointsman/sdk/wire/dataplanepb"
)

// The longest a call may take where its context does not say less. Sync's is for
// a first Full; whoever wants to know sooner reads Vitals beside it.
const (
	configureTimeout = 10 * time.Second
	syncTimeout      = 90 * time.Second
	roleTimeout      = 30 * time.Second
	cleanupTimeout   = 90 * time.Second
	vitalsTimeout    = 2 * time.Second
	readTimeout      = 60 * time.Second
)

// A Remote is a dataplane in another process. It is what [sdk.Dataplane] says,
// and may be used from several goroutines.
type Remote struct {
	conn     *grpc.ClientConn
	client   pb.DataplaneClient
	hello    Hello
	handle   Handle
	process  *process
	warnings []string
	session  atomic.Pointer[string] // of the last Configure; nil: none
	closed   sync.Once
}

var (
	_ sdk.Dataplane = (*Remote)(nil)
	_ sdk.Inspector = (*Remote)(nil)
	_ sdk.Sticky    = (*Remote)(nil)
)

func newRemote(conn *grpc.ClientConn, hello Hello, h Handle, p *process) *Remote {
	return &Remote{conn: conn, client: pb.NewDataplaneClient(conn), hello: hello, handle: h, process: p}
}

// Hello is what the plugin said of itself when it was connected to.
func (r *Remote) Hello() Hello { return r.hello }

// Handle is what it takes to Attach to the plugin again.
func (r *Remote) Handle() Handle { return r.handle }

// Warnings are what went wrong at launch without keeping it from being used.
func (r *Remote) Warnings() []string { return r.warnings }

// Exited is closed when the plugin's process has ended.
func (r *Remote) Exited() <-chan struct{} { return r.process.exited }

// Exit is how the process ended; it is told once Exited is closed.
func (r *Remote) Exit() Exit {
	if !r.process.gone() {
		return Exit{Code: -1}
	}
	return r.process.exit
}

// Configure begins a session: from here on, calls of every older one are refused.
func (r *Remote) Configure(ctx context.Context, s sdk.Setup) (sdk.Description, error) {
	ctx, cancel := context.WithTimeout(ctx, configureTimeout)
	defer cancel()
	id := rand.Text()
	r.session.Store(&id)
	reply, err := r.client.Configure(ctx, &pb.ConfigureRequest{
		Session:  id,
		Options:  s.Options,
		StateDir: s.StateDir,
		Sysctls:  encodeSysctls(s.Sysctls),
	})
	if err != nil {
		return sdk.Description{}, r.told("Configure", err)
	}
	return decodeDescription(reply.GetDescription()), nil
}

// Sync sends the update in chunks, and returns what the plugin made of it.
func (r *Remote) Sync(ctx context.Context, u sdk.Update) (sdk.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
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
		return sdk.Result{}, r.told("Sync", err)
	}
	result := sdk.Result{Failed: failed}
	if err := receiveResult(stream, &result); err != nil {
		return sdk.Result{}, r.told("Sync", err)
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

func receiveResult(stream grpc.ClientStream, result *sdk.Result) error {
	for {
		chunk := &pb.ResultChunk{}
		err := stream.RecvMsg(chunk)
		if errors.Is(err, io.EOF) {
			return errors.New("its answer was cut off")
		}
		if err != nil {
			return err
		}
		addResult(result, chunk)
		if chunk.GetLast() {
			return nil
		}
	}
}

// SetRole is as sdk.Dataplane says.
func (r *Remote) SetRole(ctx context.Context, role sdk.Role) error {
	ctx, cancel := context.WithTimeout(ctx, roleTimeout)
	defer cancel()
	_, err := r.client.SetRole(ctx, &pb.SetRoleRequest{Session: r.sessionID(), Role: pb.Role(role)})
	return r.told("SetRole", err)
}

// Cleanup is as sdk.Dataplane says. With an error it still names what went.
func (r *Remote) Cleanup(ctx context.Context, l sdk.Leftovers) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, cleanupTimeout)
	defer cancel()
	stream, err := r.client.Cleanup(ctx, &pb.CleanupRequest{Session: r.sessionID(), KubeProxy: l.KubeProxy, DryRun: l.DryRun})
	if err != nil {
		return nil, r.told("Cleanup", err)
	}
	var removed []string
	err = receiveAll(stream, func(reply *pb.CleanupReply) error {
		removed = append(removed, reply.GetRemoved()...)
		return nil
	})
	return removed, r.told("Cleanup", err)
}

// Vitals asks how the plugin is doing; it answers beside any call.
func (r *Remote) Vitals(ctx context.Context) (Vitals, error) {
	ctx, cancel := context.WithTimeout(ctx, vitalsTimeout)
	defer cancel()
	reply, err := r.client.Report(ctx, &pb.ReportRequest{})
	if err != nil {
		return Vitals{}, r.told("Report", err)
	}
	return decodeVitals(reply), nil
}

// Inspect is as sdk.Inspector says, or ErrUnsupported.
func (r *Remote) Inspect(ctx context.Context, f func(sdk.Served) error) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	stream, err := r.client.Inspect(ctx, &pb.InspectRequest{})
	if err != nil {
		return r.told("Inspect", err)
	}
	var own error // the function's, which is not to be decorated
	err = receiveAll(stream, func(reply *pb.InspectReply) error {
		for _, s := range reply.GetServed() {
			served, err := decodeServed(s)
			if err != nil {
				return err
			}
			if own = f(served); own != nil {
				return own
			}
		}
		return nil
	})
	if own != nil {
		return own
	}
	return r.told("Inspect", err)
}

// Stuck is as sdk.Sticky says, or ErrUnsupported.
func (r *Remote) Stuck(ctx context.Context, f func(sdk.Stick) error) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	stream, err := r.client.Stuck(ctx, &pb.StuckRequest{})
	if err != nil {
		return r.told("Stuck", err)
	}
	var own error
	err = receiveAll(stream, func(reply *pb.StuckReply) error {
		for _, s := range reply.GetSticks() {
			stick, err := decodeStick(s)
			if err != nil {
				return err
			}
			if own = f(stick); own != nil {
				return own
			}
		}
		return nil
	})
	if own != nil {
		return own
	}
	return r.told("Stuck", err)
}

// Seed is as sdk.Sticky says, or ErrUnsupported.
func (r *Remote) Seed(ctx context.Context, sticks []sdk.Stick) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	stream, err := r.client.Seed(ctx)
	if err != nil {
		return r.told("Seed", err)
	}
	err = sendSticks(r.sessionID(), sticks, stream.Send)
	if err != nil && !errors.Is(err, io.EOF) {
		return r.told("Seed", err)
	}
	_, err = stream.CloseAndRecv()
	return r.told("Seed", err)
}

func sendSticks(session string, sticks []sdk.Stick, send func(*pb.SeedChunk) error) error {
	b := batch[*pb.Stick]{send: func(s []*pb.Stick) error { return send(&pb.SeedChunk{Session: session, Sticks: s}) }}
	for _, stick := range sticks {
		out, err := encodeStick(stick)
		if err != nil {
			return fmt.Errorf("client %s of %s: %w", stick.Client, stick.Name, err)
		}
		if err := b.add(out, proto.Size(out)); err != nil {
			return err
		}
	}
	return send(&pb.SeedChunk{Session: session, Sticks: b.items, Last: true})
}

// Logs calls f for each line of the plugin's log, from the oldest that it still
// has, until ctx ends or the plugin does. Then it returns nil. It reads on where it
// was when a connection breaks.
func (r *Remote) Logs(ctx context.Context, f func(LogLine)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var last uint64
	for {
		err := r.readLogs(ctx, last, func(l LogLine) { f(l); last = l.number })
		if ctx.Err() != nil || err == nil || r.process.wait(ctx, exitNotice) {
			return nil
		}
		if status.Code(err) != codes.Unavailable || r.conn.GetState() == connectivity.Shutdown {
			return r.told("Logs", err)
		}
		r.process.wait(ctx, time.Second) // before it is tried again
	}
}

func (r *Remote) readLogs(ctx context.Context, after uint64, f func(LogLine)) error {
	stream, err := r.client.Logs(ctx, &pb.LogsRequest{After: after})
	if err != nil {
		return err
	}
	return receiveAll(stream, func(reply *pb.LogsReply) error {
		for _, l := range reply.GetLines() {
			f(decodeLine(l))
		}
		return nil
	})
}

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

func (r *Remote) sessionID() string {
	if id := r.session.Load(); id != nil {
		return *id
	}
	return ""
}

// exitNotice is how long the news of a process's end may lag behind that of its
// connection's.
const exitNotice = 100 * time.Millisecond

// told is err as the caller is to read it: the plugin's own error as it was, the
// transport's with the reason if the process has ended.
func (r *Remote) told(call string, err error) error {
	if err == nil {
		return nil
	}
	code := status.Code(err)
	if (code == codes.Unavailable || code == codes.Canceled) && r.process.wait(context.Background(), exitNotice) {
		return fmt.Errorf("%s: %s %s", call, r.hello, r.process.exit)
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
