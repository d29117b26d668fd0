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

// ErrFenced is what a call of an older session gets: another host has configured
// the plugin since. A host that gets it must not call the plugin again.
var ErrFenced = errors.New("fenced: another session has begun")

// ErrUnsupported is what Inspect, Trace, ExportAffinity and ImportAffinity return where the dataplane
// is no sdk.Inspector, sdk.Tracer or sdk.AffinityCarrier, and Preflight where the plugin listens at no address.
var ErrUnsupported = errors.New("not supported by this dataplane")

// remoteError is an error that came over the wire: the text it had there, and
// what it stands for here.
type remoteError struct {
	message string
	is      error // a sentinel, a *sdk.Refusal, a *sdk.Busy, or nil
}

func (e *remoteError) Error() string { return e.message }
func (e *remoteError) Unwrap() error { return e.is }

// encodeProblem turns an error into what survives the wire.
func encodeProblem(err error) *pb.Problem {
	p := &pb.Problem{Kind: pb.Problem_KIND_UNSPECIFIED, Message: text(err.Error())}
	var refusal *sdk.Refusal
	var busy *sdk.Busy
	switch {
	case errors.As(err, &refusal):
		p.Kind = pb.Problem_KIND_REFUSAL
		p.Refusal = &pb.Refusal{Field: text(refusal.Field), Why: text(refusal.Why), Try: text(refusal.Try)}
	case errors.As(err, &busy):
		p.Kind = pb.Problem_KIND_BUSY
		p.Busy = &pb.Busy{Mode: text(busy.Mode), Pid: int64(busy.PID), Program: text(busy.Program), Host: int64(busy.Host)}
	case errors.Is(err, sdk.ErrResync):
		p.Kind = pb.Problem_KIND_RESYNC
	case errors.Is(err, ErrFenced):
		p.Kind = pb.Problem_KIND_FENCED
	case errors.Is(err, ErrUnsupported):
		p.Kind = pb.Problem_KIND_UNSUPPORTED
	}
	return p
}

func decodeProblem(p *pb.Problem) error {
	message := text(p.GetMessage())
	switch p.GetKind() {
	case pb.Problem_KIND_REFUSAL:
		r := p.GetRefusal()
		refusal := &sdk.Refusal{Field: text(r.GetField()), Why: text(r.GetWhy()), Try: text(r.GetTry())}
		if refusal.Error() == p.GetMessage() {
			return refusal
		}
		return &remoteError{message, refusal}
	case pb.Problem_KIND_BUSY:
		b := p.GetBusy()
		return &remoteError{message, &sdk.Busy{Mode: oneLine(b.GetMode()), PID: int(b.GetPid()), Program: oneLine(b.GetProgram()), Host: int(b.GetHost())}}
	case pb.Problem_KIND_RESYNC:
		return &remoteError{message, sdk.ErrResync}
	case pb.Problem_KIND_FENCED:
		return &remoteError{message, ErrFenced}
	case pb.Problem_KIND_UNSUPPORTED:
		return &remoteError{message, ErrUnsupported}
	}
	return &remoteError{message: message}
}

// encodeStatus returns how a call's error leaves the plugin: a status whose detail is
// a Problem.
func encodeStatus(err error) error {
	if err == nil {
		return nil
	}
	code := codes.Unknown
	switch {
	case errors.Is(err, ErrFenced):
		code = codes.Aborted
	case errors.Is(err, context.DeadlineExceeded):
		code = codes.DeadlineExceeded
	case errors.Is(err, context.Canceled):
		code = codes.Canceled
	}
	problem := encodeProblem(err)
	st, detailErr := status.New(code, problem.Message).WithDetails(problem)
	if detailErr != nil {
		return status.Error(code, problem.Message)
	}
	return st.Err()
}

// decodeStatus returns how it arrives. An error that has no Problem is the transport's
// own, and keeps its words.
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
		return &remoteError{text(st.Message()), context.DeadlineExceeded}
	case codes.Canceled:
		return &remoteError{text(st.Message()), context.Canceled}
	case codes.Unimplemented: // a plugin of another language need not have the call
		return &remoteError{text(st.Message()), ErrUnsupported}
	}
	return fmt.Errorf("%s: %s", strings.ToLower(st.Code().String()), text(st.Message()))
}
