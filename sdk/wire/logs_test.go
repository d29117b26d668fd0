// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	pb "github.com/pointsman/pointsman/sdk/wire/dataplanepb"
)

// A chatterer answers with a log of empty lines, which cost it nothing; or, with words,
// of those, without end.
type chatterer struct {
	pb.UnimplementedDataplaneServer
	lines int
	words string
}

func (c chatterer) Logs(_ *pb.LogsRequest, stream grpc.ServerStreamingServer[pb.LogsReply]) error {
	reply := &pb.LogsReply{Lines: make([]*pb.LogLine, c.lines)}
	for i := range reply.Lines {
		reply.Lines[i] = &pb.LogLine{Message: c.words}
	}
	err := stream.Send(reply)
	for c.words != "" && err == nil {
		err = stream.Send(reply)
	}
	return err
}

// chatting is a plugin that does nothing but that.
func chatting(t *testing.T, c chatterer) *Remote {
	t.Helper()
	return faking(t, func(s *grpc.Server) { pb.RegisterDataplaneServer(s, c) })
}

// faking is what answers in place of a plugin.
func faking(t *testing.T, register func(*grpc.Server)) *Remote {
	t.Helper()
	path := filepath.Join(shortDir(t), "s")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	register(g)
	go g.Serve(listener)
	t.Cleanup(g.Stop)
	conn, err := dial(Target{Network: "unix", Address: path}, 0, &attempts{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return newRemote(conn, Hello{Majors: Majors()}, Target{}, newUnseen())
}

// Of many lines at once, a host takes no more than it reads in a second; and empty ones
// cost it time too.
func TestManyLinesAtOnce(t *testing.T) {
	heard, began := 0, time.Now()
	if err := chatting(t, chatterer{lines: 20_000}).Logs(soon(t), func(LogLine) { heard++ }); err != nil {
		t.Error(err)
	}
	if heard != maxLines {
		t.Errorf("%d lines were heard; want %d", heard, maxLines)
	}
	if took := time.Since(began); took < time.Second {
		t.Errorf("they were read in %s; each counts for %d bytes of %d in a second", took, lineCost, logRate)
	}
}

// However fast a plugin chatters, a host reads so much in a second, and no more.
func TestLogFloodIsReadSlowly(t *testing.T) {
	ctx, cancel := context.WithCancel(soon(t))
	heard, began := 0, time.Now()
	err := chatting(t, chatterer{lines: 64, words: strings.Repeat("x", 1<<10)}).Logs(ctx, func(l LogLine) {
		if heard += len(l.Message); heard > 2*logRate {
			cancel()
		}
	})
	if took := time.Since(began); err != nil || heard < 2*logRate || took < 1500*time.Millisecond {
		t.Errorf("%d bytes were read in %s, %v; want %d in a second", heard, took, err, logRate)
	}
}
