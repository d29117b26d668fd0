// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"crypto/tls"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	"github.com/pointsman/pointsman/sdk"
	pb "github.com/pointsman/pointsman/sdk/wire/dataplanepb"
	"github.com/pointsman/pointsman/test/actor"
)

func TestMain(m *testing.M) { actor.Main(m, parts) }

type (
	subject = actor.Dataplane
	order   = actor.Order
)

var (
	subjectDescription = actor.Description
	bulk               = actor.Bulk
	bulkService        = actor.BulkService
	soon               = actor.Soon
	shortDir           = actor.ShortDir
	full               = actor.Full
)

var parts = map[string]func(){
	"serve": func() { Serve(subjectDescription(), &subject{}) },
}

// part returns a command that runs this binary in another part.
func part(name string, args ...string) *exec.Cmd {
	self, env := actor.As(name)
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), env...)
	return cmd
}

// configured begins a session of r with these orders.
func configured(t testing.TB, r *Remote, o order) *Remote {
	t.Helper()
	if _, err := r.Configure(soon(t), sdk.Setup{Options: o.Options()}); err != nil {
		t.Fatal(err)
	}
	return r
}

func brief(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

// faking returns a Remote of the services that register adds.
func faking(t *testing.T, register func(*grpc.Server)) *Remote {
	t.Helper()
	listener := bufconn.Listen(window)
	g := grpc.NewServer()
	register(g)
	go g.Serve(listener)
	t.Cleanup(g.Stop)
	end, err := listener.DialContext(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return remoteOver(t, end, nil, Hello{Majors: Majors()})
}

// remoteOver returns a Remote without calling Hello.
func remoteOver(t testing.TB, end net.Conn, config *tls.Config, hello Hello) *Remote {
	t.Helper()
	conn, err := newClientConn(end, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &Remote{conn: conn, client: pb.NewDataplaneClient(conn), hello: hello, process: &link{}, link: &link{cancel: func() {}}}
}
