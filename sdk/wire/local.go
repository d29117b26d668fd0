// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/pointsman/pointsman/sdk"
)

// Local joins both ends of the wire in this process: everything is as with a
// plugin of its own, but for the process. It is for tests, and it ends with Shutdown.
func Local(ctx context.Context, d sdk.Description, dp sdk.Dataplane) (*Remote, error) {
	s := newServer(d, dp)
	listener := bufconn.Listen(window)
	g := grpc.NewServer(serverOptions()...)
	s.register(g)
	p := newUnseen()
	go s.stopWhenEnded(g)
	go func() { // ends with Shutdown
		_ = g.Serve(listener)
		p.end("was stopped")
	}()
	conn, err := connect(insecure.NewCredentials(), func(ctx context.Context, _ string) (net.Conn, error) {
		return listener.DialContext(ctx)
	})
	if err != nil {
		s.end()
		return nil, err
	}
	hello, err := greet(ctx, conn, s.hello.Nonce)
	if err != nil {
		conn.Close()
		s.end()
		return nil, err
	}
	return newRemote(conn, hello, Target{Network: "local", Nonce: hello.Nonce}, p), nil
}
