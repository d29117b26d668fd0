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

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/test/actor"
)

func TestMain(m *testing.M) { actor.Main(m, parts) }

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
	soon               = actor.Soon
	shortDir           = actor.ShortDir
	full               = actor.Full
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
	self, env := actor.As(name)
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), env...)
	return cmd
}

// configured is r in a new session, under these orders.
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
