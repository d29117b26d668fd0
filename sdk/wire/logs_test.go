// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"net"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"

	pb "github.com/pointsman/pointsman/sdk/wire/dataplanepb"
)

// A chatterer answers with a log of empty lines, which cost it nothing.
type chatterer struct {
	pb.UnimplementedDataplaneServer
	lines int
}

func (c chatterer) Logs(_ *pb.LogsRequest, stream grpc.ServerStreamingServer[pb.LogsReply]) error {
	reply := &pb.LogsReply{Lines: make([]*pb.LogLine, c.lines)}
	for i := range reply.Lines {
		reply.Lines[i] = &pb.LogLine{}
	}
	return stream.Send(reply)
}

// Of many lines at once, a host takes no more than it reads in a second.
func TestManyLinesAtOnce(t *testing.T) {
	path := filepath.Join(shortDir(t), "s")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	pb.RegisterDataplaneServer(g, chatterer{lines: 200_000})
	go g.Serve(listener)
	defer g.Stop()
	conn, err := dial(Handle{Network: "unix", Address: path}, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	heard := 0
	if err := newRemote(conn, Hello{Majors: majors()}, Handle{}, newProcess(0)).Logs(soon(t), func(LogLine) { heard++ }); err != nil {
		t.Error(err)
	}
	if heard != maxLines {
		t.Errorf("%d lines were heard; want %d", heard, maxLines)
	}
}
