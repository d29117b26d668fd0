// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/exec"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/test/actor"
)

// partEnv makes this test binary play another part than running tests: it is the
// plugins that the tests start.
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

// The dataplane behind the wire, and what it is sent.
type (
	subject = actor.Dataplane
	order   = actor.Order
)

var (
	subjectDescription = actor.Description
	relayDescription   = actor.RelayDescription
	bulk               = actor.Bulk
	bulkService        = actor.BulkService
)

var parts = map[string]func(){
	"serve":          func() { Serve(subjectDescription(), &subject{}) },
	"short-lived":    playShortLived,
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

// playShortLived is a plugin that does not run long without a host.
func playShortLived() {
	s := newServer(subjectDescription(), &subject{})
	s.hostTimeout = time.Second
	serveLaunched(s)
}

// playListenerOfMajor2 listens for itself, and speaks the next major.
func playListenerOfMajor2() {
	s := newServer(subjectDescription(), &subject{})
	s.hello.Majors, s.hello.Needs = []uint32{2}, needs(2)
	if err := listenAndServe(s, socket{address: os.Args[1]}, os.Stderr); err != nil {
		log.Fatal(err)
	}
}

// part is this binary in another part.
func part(name string, args ...string) *exec.Cmd {
	self, err := os.Executable()
	if err != nil {
		panic(err) // a test binary knows its path
	}
	cmd := exec.Command(self, args...)
	// Under the race detector a process would take a second to exit.
	cmd.Env = append(os.Environ(), partEnv+"="+name, "GORACE=atexit_sleep_ms=0")
	return cmd
}

// soon is a deadline for what takes milliseconds on a good day.
func soon(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// shortDir is a folder with a short path, gone after the test: t.TempDir's has the
// test's name in it, and may leave no room for a socket's 107 bytes.
func shortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "w")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// configured is r in a new session, under these orders.
func configured(t testing.TB, r *Remote, o order) *Remote {
	t.Helper()
	if _, err := r.Configure(soon(t), sdk.Setup{Options: o.Options()}); err != nil {
		t.Fatal(err)
	}
	return r
}

func full(to uint64, set ...sdk.Service) sdk.Update {
	return sdk.Update{To: to, Full: true, Set: set}
}

func brief(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}
