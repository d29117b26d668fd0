// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-plugin"
	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/pointsman/pointsman/sdk"
)

// partEnv makes this test binary play another part than running tests: it is the
// plugins, and the hosts, that the tests start.
const partEnv = "POINTSMAN_TEST_PART"

func TestMain(m *testing.M) {
	if part, ok := os.LookupEnv(partEnv); ok {
		parts[part]()
		return
	}
	exit := m.Run()
	if err := goleak.Find(); err != nil && exit == 0 {
		fmt.Fprintln(os.Stderr, "after all tests:", err)
		exit = 1
	}
	os.Exit(exit)
}

var parts = map[string]func(){
	"serve":          func() { Serve(subjectDescription(), &subject{}) },
	"relay":          func() { Serve(relayDescription(), &subject{}) },
	"host":           playHost,
	"rubbish-stdout": func() { fmt.Println("starting up…"); Serve(subjectDescription(), &subject{}) },
	"long-stdout":    func() { fmt.Println(strings.Repeat("x", 100<<10)); Serve(subjectDescription(), &subject{}) },
	"rubbish-stderr": func() { printRubbish(); Serve(subjectDescription(), &subject{}) },
	"no-handshake":   func() { fmt.Fprintln(os.Stderr, "thinking"); time.Sleep(time.Minute) },
	"works-first":    func() { work(3 * time.Second); Serve(subjectDescription(), &subject{}) },
	"works-for-ever": func() { work(time.Hour) },
	"exits":          func() { fmt.Fprintln(os.Stderr, "no such thing as /dev/points"); os.Exit(3) },
	"panics":         func() { panic("the points are frozen") },
	"major-2":        playMajor2,
	"junk-cert":      func() { playHandshake(strings.Repeat("A", 60)) },
	"no-cert":        func() { playHandshake("") },
	"foreign-cert":   func() { playHandshake(os.Getenv("POINTSMAN_TEST_CERT")) },
	"impatient":      playImpatient,
	"listen-major-2": playListenerOfMajor2,
	"mutters":        func() { go mutter(os.Stderr); Serve(subjectDescription(), &subject{}) },
}

// mutter prints to stderr until that fails, and tells by a file that it did.
func mutter(stderr *os.File) {
	var err error
	for ; err == nil; time.Sleep(time.Millisecond) {
		_, err = fmt.Fprintln(stderr, "hm")
	}
	if err := os.WriteFile(os.Getenv("POINTSMAN_TEST_FILE"), []byte(err.Error()), 0o600); err != nil {
		panic(err) // the test waits for it in vain
	}
}

// playImpatient is a plugin that does not stay long without a host.
func playImpatient() {
	s := newServer(subjectDescription(), &subject{})
	s.patience = 3 * time.Second
	serveLaunched(s)
}

// playListenerOfMajor2 listens for itself, and speaks the next major.
func playListenerOfMajor2() {
	s := newServer(subjectDescription(), &subject{})
	s.hello.Majors, s.hello.Needs = []uint32{2}, needs(2)
	if err := listenAndServe(s, door{address: os.Args[1]}, os.Stderr); err != nil {
		log.Fatal(err)
	}
}

func printRubbish() {
	fmt.Fprintln(os.Stderr, `{"@message":5}`)
	fmt.Fprintln(os.Stderr, `{"@level":{},"@timestamp":[1]}`)
	fmt.Fprintln(os.Stderr, strings.Repeat("y", 100<<10))
	os.Stderr.Write([]byte{0xff, 0xfe, 0, 1, 2, '\n'})
}

// playMajor2 is a plugin of the next major.
func playMajor2() {
	plugin.Serve(&plugin.ServeConfig{
		HandshakeConfig:  handshakeConfig(),
		VersionedPlugins: map[int]plugin.PluginSet{2: {"dataplane": registration{server: newServer(subjectDescription(), &subject{})}}},
		GRPCServer:       func(o []grpc.ServerOption) *grpc.Server { return grpc.NewServer(o...) },
	})
}

// playHandshake answers like a plugin, by hand, and does no more.
func playHandshake(cert string) {
	fmt.Printf("1|1|unix|/nowhere/at/all|grpc|%s\n", cert)
	time.Sleep(time.Minute)
}

// playHost launches a plugin, says how to reach it, and waits to be killed.
func playHost() {
	ctx := context.Background()
	os.Unsetenv(partEnv)
	r, err := Launch(ctx, part(os.Getenv("POINTSMAN_TEST_PLUGIN"), os.Getenv("POINTSMAN_TEST_DIR")))
	if err != nil {
		log.Fatal(err)
	}
	if _, err := r.Configure(ctx, sdk.Setup{Options: order{Chatter: 4 << 20}.options()}); err != nil {
		log.Fatal(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(r.Handle()); err != nil {
		log.Fatal(err)
	}
	select {}
}

// part is the command that starts this binary in another part.
func part(name, socketDir string, env ...string) Command {
	self, err := os.Executable()
	if err != nil {
		panic(err) // a test binary knows its path
	}
	// Under the race detector a process would take a second to exit.
	env = append(env, partEnv+"="+name, "GORACE=atexit_sleep_ms=0")
	return Command{Path: self, Env: env, SocketDir: socketDir, Timeout: time.Minute}
}

func subjectDescription() sdk.Description {
	return sdk.Description{Name: "subject", Version: "0.0.1", Features: sdk.Features, Options: []byte(`{"type":"object"}`)}
}

func relayDescription() sdk.Description {
	d := subjectDescription()
	d.Limits = []sdk.Limit{sdk.LimitDiesWithProcess}
	return d
}

// A subject is a dataplane that does what its options say.
type subject struct {
	setup sdk.Setup
	order order

	mu      sync.Mutex // guards what is below
	updates []sdk.Update
}

// An order is the options of a subject.
type order struct {
	Hang    bool   // Sync never returns
	Wait    bool   // Sync returns when its context ends
	Signal  int    // which Sync then sends to its own process first; zero: none
	Panic   string // Sync panics
	Fatal   string // Sync calls log.Fatal
	Print   int    // bytes for Sync to print with fmt.Println
	Log     int    // lines for Sync to log
	Raw     bool   // Sync prints rubbish to the stderr that package log has kept
	Refuse  bool   // Configure refuses
	Resync  bool   // Sync answers ErrResync
	Steps   int    // lines in Result.Steps
	Planned bool   // Sync only plans
	Digest  bool   // Sync's one step is the digest of the update
	Chatter int    // bytes to print after Configure, in the background
	Schema  string // the options in the description that Configure returns
	Big     int    // bytes of options in the description that Configure returns
}

func (o order) options() []byte {
	out, err := json.Marshal(o)
	if err != nil {
		panic(err) // strings and numbers
	}
	return out
}

func (s *subject) Configure(_ context.Context, setup sdk.Setup) (sdk.Description, error) {
	s.setup, s.order = setup, order{}
	if len(setup.Options) > 0 {
		if err := json.Unmarshal(setup.Options, &s.order); err != nil {
			return sdk.Description{}, err
		}
	}
	if s.order.Refuse {
		return sdk.Description{}, &sdk.Refusal{Field: "options.refuse", Why: "it was asked for", Try: "asking for less"}
	}
	if s.order.Chatter > 0 {
		go chatter(s.order.Chatter, setup)
	}
	d := subjectDescription()
	d.Features = d.Features[:1]
	if s.order.Big > 0 {
		d.Options = []byte(`"` + strings.Repeat("x", s.order.Big) + `"`)
	}
	if s.order.Schema != "" {
		d.Options = []byte(s.order.Schema)
	}
	return d, nil
}

func signalSelf(signal int) {
	if signal == 0 {
		return
	}
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		panic(err) // this process exists
	}
	if err := self.Signal(syscall.Signal(signal)); err != nil {
		panic(err)
	}
}

// digest is short for all that u says.
func digest(u sdk.Update) string {
	h := sha256.New()
	for _, svc := range u.Set {
		fmt.Fprintf(h, "%+v\n", svc)
	}
	u.Set, u.Node = nil, nil
	fmt.Fprintf(h, "%+v", u)
	return hex.EncodeToString(h.Sum(nil))
}

// chatter prints in each way that a plugin can, slowly enough to outlive its host.
func chatter(bytes int, setup sdk.Setup) {
	for printed := 0; printed < bytes; printed += 4 << 10 {
		fmt.Println(strings.Repeat("o", 1<<10))
		fmt.Fprintln(os.Stderr, strings.Repeat("e", 1<<10))
		log.Print(strings.Repeat("l", 1<<10))
		setup.Log.Info(strings.Repeat("s", 1<<10))
		time.Sleep(time.Millisecond)
	}
	setup.Log.Info("all is said")
}

func (s *subject) Sync(ctx context.Context, u sdk.Update) (sdk.Result, error) {
	switch {
	case s.order.Hang:
		select {}
	case s.order.Wait:
		<-ctx.Done()
		signalSelf(s.order.Signal)
		return sdk.Result{}, ctx.Err()
	case s.order.Panic != "":
		panic(s.order.Panic)
	case s.order.Fatal != "":
		log.Fatal(s.order.Fatal)
	case s.order.Resync:
		return sdk.Result{}, fmt.Errorf("lost my place: %w", sdk.ErrResync)
	}
	for printed := 0; printed < s.order.Print; printed += 64 {
		fmt.Println(strings.Repeat("p", 63))
	}
	for i := range s.order.Log {
		s.setup.Log.Info("a line", "n", i)
	}
	if s.order.Raw {
		log.Print(`{"@message":5}`)
		syscall.Write(2, []byte("\xff\xfe rubbish\n"))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.updates = append(s.updates, u)
	result := sdk.Result{Planned: s.order.Planned}
	if s.order.Digest {
		result.Steps = []string{digest(u)}
	}
	for i := range s.order.Steps {
		result.Steps = append(result.Steps, fmt.Sprintf("step %d %s", i, strings.Repeat("s", 100)))
	}
	for _, svc := range u.Set {
		if why, fails := svc.Hints["fail"]; fails {
			failure := sdk.Failure{Name: svc.Name}
			if why != "" {
				failure.Err = errors.New(why)
			}
			result.Failed = append(result.Failed, failure)
		}
	}
	return result, nil
}

func (s *subject) SetRole(context.Context, sdk.Role) error { return nil }

func (s *subject) Cleanup(_ context.Context, l sdk.Leftovers) ([]string, error) {
	if l.KubeProxy {
		return []string{"chain A", "chain KUBE"}, nil
	}
	return []string{"chain A"}, nil
}

func (s *subject) Report() sdk.Report {
	took := sdk.NewHistogram("h", map[string]string{"c": "d"}, 1, 2)
	took.Observe(1.5)
	return sdk.Report{
		Progress: 7, Waiting: "the lock", SwapImpact: "2 flows", Histograms: []sdk.Histogram{took},
		Samples: []sdk.Sample{{Name: "m", Labels: map[string]string{"a": "b"}, Value: 1.5}},
	}
}
