// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/pointsman/pointsman/internal/lines"
	pb "github.com/pointsman/pointsman/sdk/wire/dataplanepb"
)

// A LogLine is one line of a plugin's log: from Setup.Log, or printed to stdout
// or stderr, which an attribute "stream" tells.
type LogLine struct {
	Time    time.Time
	Level   slog.Level
	Message string
	Attrs   []slog.Attr // values are strings
	Dropped uint64      // lines lost just before this one, because nothing read them in time

	number uint64 // counted from 1
}

// String returns the line as people read it.
func (l LogLine) String() string {
	var b strings.Builder
	b.WriteString(l.Time.Format(time.RFC3339) + " " + l.Level.String() + " " + l.Message)
	for _, a := range l.Attrs {
		b.WriteString(" " + a.Key + "=" + quoted(a.Value.String()))
	}
	if l.Dropped > 0 {
		fmt.Fprintf(&b, " (%d lines before were lost)", l.Dropped)
	}
	return b.String()
}

func quoted(s string) string {
	if s == "" || strings.ContainsAny(s, " \t\n\"=") {
		return strconv.Quote(s)
	}
	return s
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
		if ctx.Err() != nil || err == nil || r.ended(ctx, exitNotice) {
			return nil
		}
		if status.Code(err) != codes.Unavailable || r.conn.GetState() == connectivity.Shutdown {
			return r.callError("Logs", err)
		}
		r.ended(ctx, time.Second) // a pause before the next attempt
	}
}

func (r *Remote) readLogs(ctx context.Context, after uint64, f func(LogLine)) error {
	stream, err := r.client.Logs(ctx, &pb.LogsRequest{After: after})
	if err != nil {
		return err
	}
	return receiveAll(stream, func(reply *pb.LogsReply) error {
		for _, l := range first(reply.GetLines(), maxLines) {
			f(decodeLine(l))
		}
		r.limitLog(ctx, proto.Size(reply), len(reply.GetLines()))
		return nil
	})
}

func (s *server) Logs(r *pb.LogsRequest, stream grpc.ServerStreamingServer[pb.LogsReply]) error {
	c := newReply(stream.Send)
	return s.follow(r.After, stream.Context().Done(), func(lines []LogLine) error {
		for _, l := range lines {
			if err := add(c, encodeLine(l), func(m *pb.LogsReply) *[]*pb.LogLine { return &m.Lines }); err != nil {
				return err
			}
		}
		return c.flush()
	})
}

// follow calls f with the lines after that number, as they come, until done is closed or the
// server ends. f may be called with none.
func (s *server) follow(after uint64, done <-chan struct{}, f func([]LogLine) error) error {
	reader := s.ring.reader(after)
	for {
		lines, more := reader.next(ringBatch)
		if err := f(lines); err != nil {
			return err
		}
		if len(lines) > 0 {
			continue
		}
		select {
		case <-more:
		case <-s.closing:
			return nil
		case <-done:
			return nil
		}
	}
}

func encodeLine(l LogLine) *pb.LogLine {
	out := &pb.LogLine{
		UnixNano: l.Time.UnixNano(),
		Level:    int32(l.Level),
		Message:  text(l.Message),
		Dropped:  l.Dropped,
		Number:   l.number,
	}
	for _, a := range l.Attrs {
		out.Attrs = append(out.Attrs, &pb.LogAttr{Key: text(a.Key), Value: text(a.Value.String())})
	}
	return out
}

func decodeLine(l *pb.LogLine) LogLine {
	out := LogLine{
		Time:    time.Unix(0, l.GetUnixNano()),
		Level:   slog.Level(l.GetLevel()),
		Message: oneLine(l.GetMessage()),
		Dropped: l.GetDropped(),
		number:  l.GetNumber(),
	}
	for _, a := range first(l.GetAttrs(), maxWords) {
		out.Attrs = append(out.Attrs, slog.String(oneLine(a.GetKey()), oneLine(a.GetValue())))
	}
	return out
}

// LevelEnv is the environment variable that sets a plugin's log level: debug,
// info, warn or error. The default is info.
const LevelEnv = "POINTSMAN_LOG_LEVEL"

func logLevel() slog.Level {
	var level slog.Level
	if err := level.UnmarshalText([]byte(os.Getenv(LevelEnv))); err != nil {
		return slog.LevelInfo
	}
	return level
}

// A ringHandler is what stands behind Setup.Log: it never waits and never fails.
type ringHandler struct {
	ring   *ring
	level  slog.Level
	prefix string      // of the open groups: "a.b."
	attrs  []slog.Attr // given by With
}

func newRingHandler(r *ring, level slog.Level) *ringHandler {
	return &ringHandler{ring: r, level: level}
}

func (h *ringHandler) Enabled(_ context.Context, level slog.Level) bool { return level >= h.level }

func (h *ringHandler) Handle(_ context.Context, r slog.Record) error {
	line := LogLine{Time: r.Time, Level: r.Level, Message: bounded(r.Message), Attrs: slices.Clip(h.attrs)}
	r.Attrs(func(a slog.Attr) bool {
		line.Attrs = appendAttr(line.Attrs, h.prefix, a)
		return len(line.Attrs) < maxAttrs
	})
	h.ring.add(line)
	return nil
}

func (h *ringHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	with := *h
	with.attrs = slices.Clip(h.attrs)
	for _, a := range attrs {
		with.attrs = appendAttr(with.attrs, h.prefix, a)
	}
	return &with
}

func (h *ringHandler) WithGroup(name string) slog.Handler {
	with := *h
	if name != "" {
		with.prefix = h.prefix + name + "."
	}
	return &with
}

// appendAttr adds a as strings, a group as its members: what is kept must not
// change any more, and needs no type.
func appendAttr(attrs []slog.Attr, prefix string, a slog.Attr) []slog.Attr {
	value := a.Value.Resolve()
	if value.Kind() != slog.KindGroup {
		if a.Key == "" {
			return attrs
		}
		return append(attrs, slog.String(prefix+a.Key, bounded(value.String())))
	}
	if a.Key != "" {
		prefix += a.Key + "."
	}
	for _, member := range value.Group() {
		attrs = appendAttr(attrs, prefix, member)
	}
	return attrs
}

// maxAttrs bounds a line's attributes; those beyond are left out.
const maxAttrs = 32

// bounded cuts what is too long to keep.
func bounded(s string) string {
	if len(s) > lines.Max {
		return s[:lines.Max] + "…"
	}
	return s
}
