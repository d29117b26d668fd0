// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/pointsman/pointsman/sdk"
	pb "github.com/pointsman/pointsman/sdk/wire/dataplanepb"
)

// ErrFenced is the error of a call in an older session: another host has configured the plugin
// since. A host that gets it must not call the plugin again.
var ErrFenced = errors.New("fenced: another session has begun")

// ErrUnsupported is returned by Inspect, Trace, Watch, ExportAffinity and ImportAffinity if the
// dataplane does not implement sdk.Inspector, sdk.Tracer, sdk.Watcher or sdk.AffinityCarrier,
// and by any call that a plugin in another language does not implement.
var ErrUnsupported = errors.New("not supported by this dataplane")

// remoteError is an error received over the wire: its text, and the error that it stands for.
type remoteError struct {
	message string
	is      error // a sentinel, a *sdk.Refusal, a *sdk.Busy, or nil
}

func (e *remoteError) Error() string { return e.message }
func (e *remoteError) Unwrap() error { return e.is }

// sentinels are the errors that a Problem's kind alone identifies.
var sentinels = map[pb.Problem_Kind]error{
	pb.Problem_KIND_RESYNC:      sdk.ErrResync,
	pb.Problem_KIND_FENCED:      ErrFenced,
	pb.Problem_KIND_UNSUPPORTED: ErrUnsupported,
}

// encodeProblem converts an error to the form that the wire preserves.
func encodeProblem(err error) *pb.Problem {
	p := &pb.Problem{Message: Printable(err.Error())}
	for kind, sentinel := range sentinels {
		if errors.Is(err, sentinel) {
			p.Kind = kind
		}
	}
	if r, ok := errors.AsType[*sdk.Refusal](err); ok {
		p.Kind = pb.Problem_KIND_REFUSAL
		p.Refusal = &pb.Refusal{Field: Printable(r.Field), Why: Printable(r.Why), Try: Printable(r.Try)}
	} else if b, ok := errors.AsType[*sdk.Busy](err); ok {
		p.Kind = pb.Problem_KIND_BUSY
		p.Busy = &pb.Busy{Mode: Printable(b.Mode), Pid: int64(b.PID), Program: Printable(b.Program), Host: int64(b.Host)}
	}
	return p
}

func decodeProblem(p *pb.Problem) error {
	e := &remoteError{Printable(p.GetMessage()), sentinels[p.GetKind()]}
	switch p.GetKind() {
	case pb.Problem_KIND_REFUSAL:
		r := p.GetRefusal()
		e.is = &sdk.Refusal{Field: Printable(r.GetField()), Why: Printable(r.GetWhy()), Try: Printable(r.GetTry())}
	case pb.Problem_KIND_BUSY:
		b := p.GetBusy()
		e.is = &sdk.Busy{Mode: oneLine(b.GetMode()), PID: int(b.GetPid()), Program: oneLine(b.GetProgram()), Host: int(b.GetHost())}
	}
	return e
}

// encodeStatus converts a call's error to a status with a Problem as its detail.
func encodeStatus(err error) error {
	if err == nil {
		return nil
	}
	problem := encodeProblem(err)
	st := status.New(status.FromContextError(err).Code(), problem.Message)
	if detailed, err := st.WithDetails(problem); err == nil {
		st = detailed
	}
	return st.Err()
}

// decodeStatus is the inverse of encodeStatus. An error without a Problem is from the
// transport, and keeps its text.
func decodeStatus(err error) error {
	if err == nil {
		return nil
	}
	st, ok := status.FromError(err)
	if !ok {
		return err
	}
	for _, detail := range st.Details() {
		if p, ok := detail.(*pb.Problem); ok && st.Code() != codes.DeadlineExceeded && st.Code() != codes.Canceled {
			return decodeProblem(p)
		}
	}
	switch st.Code() {
	case codes.DeadlineExceeded:
		return &remoteError{Printable(st.Message()), context.DeadlineExceeded}
	case codes.Canceled:
		return &remoteError{Printable(st.Message()), context.Canceled}
	case codes.Unimplemented: // a plugin in another language need not implement the call
		return &remoteError{Printable(st.Message()), ErrUnsupported}
	}
	return fmt.Errorf("%s: %s", strings.ToLower(st.Code().String()), Printable(st.Message()))
}
