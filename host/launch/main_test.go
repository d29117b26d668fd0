// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/wire"
	pb "github.com/pointsman/pointsman/sdk/wire/dataplanepb"
	"github.com/pointsman/pointsman/test/actor"
)

func TestMain(m *testing.M) { actor.Main(m, parts) }

type order = actor.Order

var (
	soon     = actor.Soon
	shortDir = actor.ShortDir
	full     = actor.Full
)

func serve() { wire.Serve(actor.Description(), &actor.Dataplane{}) }

var parts = map[string]func(){
	"serve":          serve,
	"host":           playHost,
	"rubbish-stdout": func() { fmt.Println("starting up…"); serve() },
	"long-stdout":    func() { fmt.Println(strings.Repeat("x", 100<<10)); serve() },
	"rubbish-stderr": func() { printRubbish(); serve() },
	"no-handshake":   func() { fmt.Fprintln(os.Stderr, "thinking"); hang() },
	"exits":          func() { fmt.Fprintln(os.Stderr, "no such thing as /dev/null0"); os.Exit(3) },
	"panics":         func() { panic("the ruleset is broken") },
	"major-2":        func() { playHandshake(2, "") },
	"junk-cert":      func() { playHandshake(1, strings.Repeat("A", 60)) },
	"no-cert":        func() { playHandshake(1, "") },
	"leaves-tool":    leaveTool,
	"ends-in-hello":  func() { playHello(func() { os.Exit(3) }) },
	"stops-in-hello": func() { playHello(hang) },
	"foreign-cert":   func() { playHandshake(1, os.Getenv("POINTSMAN_TEST_CERT")) },
}

func printRubbish() {
	fmt.Fprintln(os.Stderr, `{"@message":5}`)
	fmt.Fprintln(os.Stderr, `{"@level":{},"@timestamp":[1]}`)
	fmt.Fprintln(os.Stderr, strings.Repeat("y", 100<<10))
	os.Stderr.Write([]byte{0xff, 0xfe, 0, 1, 2, '\n'})
}

// playHandshake prints the handshake of a plugin, and does nothing else.
func playHandshake(major int, cert string) {
	fmt.Printf("1|%d|unix|/nowhere/at/all|grpc|%s\n", major, cert)
	hang()
}

// hang waits for a signal that nobody sends, which the runtime does not take for a deadlock.
func hang() {
	never := make(chan os.Signal, 1)
	signal.Notify(never, os.Interrupt)
	<-never
}

// leaveTool ends, and leaves a child that keeps its stderr open for some seconds.
func leaveTool() {
	tool := exec.Command("sleep", "3")
	tool.Stderr = os.Stderr
	if err := tool.Start(); err != nil {
		log.Fatal(err)
	}
	os.Exit(3)
}

// playHello serves a plugin that calls greeted in Hello.
func playHello(greeted func()) {
	plugin.Serve(&plugin.ServeConfig{
		HandshakeConfig:  wire.Handshake(),
		VersionedPlugins: map[int]plugin.PluginSet{1: {"dataplane": greeter{greeted: greeted}}},
		GRPCServer:       plugin.DefaultGRPCServer,
	})
}

type greeter struct {
	plugin.NetRPCUnsupportedPlugin
	pb.UnimplementedHelloServer
	greeted func()
}

func (g greeter) GRPCServer(_ *plugin.GRPCBroker, s *grpc.Server) error {
	pb.RegisterHelloServer(s, g)
	return nil
}

func (greeter) GRPCClient(context.Context, *plugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, errors.New("this part is a plugin")
}

func (g greeter) Hello(context.Context, *pb.HelloRequest) (*pb.HelloReply, error) {
	g.greeted()
	return nil, errors.New("it was greeted")
}

// playHost launches a plugin, prints its pid, and waits to be killed.
func playHost() {
	ctx := context.Background()
	os.Unsetenv(actor.PartEnv)
	p, err := part("serve", os.Getenv("POINTSMAN_TEST_DIR")).launch(ctx)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := p.Configure(ctx, sdk.Setup{}); err != nil {
		log.Fatal(err)
	}
	fmt.Println(p.Hello().PID)
	select {}
}

// A start is a plugin, and where its output goes.
type start struct {
	Plugin
	Log func(line string) // may be nil
}

// launch starts a process without a session.
func (s start) launch(ctx context.Context) (*Process, error) {
	binary, err := s.Open()
	if err != nil {
		return nil, err
	}
	defer binary.Close()
	log := s.Log
	if log == nil {
		log = func(string) {}
	}
	return s.Plugin.launch(ctx, binary, log)
}

// Stop ends the process, and returns an error if it does not end.
func (p *Process) Stop() error {
	p.End(nil)
	select {
	case <-p.Exited():
		return nil
	default:
		return errors.New("the process does not end")
	}
}

// part starts this binary in another part.
func part(name, socketDir string, env ...string) start {
	self, as := actor.As(name)
	return start{Plugin: Plugin{Path: self, Env: append(env, as...), SocketDir: socketDir, timeout: time.Minute}}
}

// launched launches a plugin that plays a part. It is stopped after the test.
func launched(t testing.TB, name string) *Process {
	t.Helper()
	r, err := part(name, shortDir(t)).launch(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Stop() })
	return r
}

// configured begins a session of r with these orders.
func configured(t testing.TB, r *Process, o order) *Process {
	t.Helper()
	if _, err := r.Configure(soon(t), sdk.Setup{Options: o.Options()}); err != nil {
		t.Fatal(err)
	}
	return r
}
