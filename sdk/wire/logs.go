// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

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
	reader := s.ring.reader(r.After)
	c := newReply(stream.Send)
	for {
		lines, more := reader.next(ringBatch)
		for _, l := range lines {
			out := encodeLine(l)
			if err := c.room(proto.Size(out)); err != nil {
				return err
			}
			c.chunk.Lines = append(c.chunk.Lines, out)
		}
		if err := c.flush(); err != nil {
			return err
		}
		if len(lines) > 0 {
			continue
		}
		select {
		case <-more:
		case <-s.closing:
			return nil
		case <-stream.Context().Done():
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
