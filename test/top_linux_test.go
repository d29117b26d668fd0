// SPDX-License-Identifier: Apache-2.0

package test

import (
	"encoding/json"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pointsman/pointsman/host/terminal/terminaltest"
	"github.com/pointsman/pointsman/test/eventually"
)

// screenOf returns what a terminal shows of a verb that draws it anew from the top.
func screenOf(x *terminaltest.Terminal) string {
	all := strings.Split(x.Printed(), "\x1b[H")
	return regexp.MustCompile(`\x1b\[(K|J|\d+m)|\r`).ReplaceAllString(all[len(all)-1], "")
}

// atTerminal runs a verb with a terminal as its input and output; ended has how it ended.
func (s *system) atTerminal(x *terminaltest.Terminal, words ...string) (ended <-chan error) {
	s.t.Helper()
	cmd := exec.CommandContext(s.t.Context(), filepath.Join(binaries(s.t), "pointsman"), append(words, "--config", s.path("host.yaml"))...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = x.Program, x.Program, x.Program
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true} // so that Ctrl-C interrupts it
	cmd.Env = append(cmd.Environ(), "TERM=xterm", "NO_COLOR=")
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }() // ends with the process, which ends with the test
	return done
}

// TestTop shows, on a terminal, what happens while it runs, until q is typed.
func TestTop(t *testing.T) {
	t.Parallel()
	s := begun(t)
	s.serving()
	x := terminaltest.New(t, 100, 20)
	ended := s.atTerminal(x, "top")
	shows := func(what, pattern string) {
		t.Helper()
		s.until(what, func() error {
			if got := screenOf(x); !regexp.MustCompile(pattern).MatchString(got) {
				return fmt.Errorf("the screen is\n%s", got)
			}
			return nil
		})
	}
	shows("what is so", `(?m)^dataplane +userspace is serving, pid \d+, 0 restarts, memory \d+\.\d MiB$`)
	if !strings.Contains(x.Printed(), "is \x1b[32mserving\x1b[39m,") {
		t.Errorf("it has no colours: %q", x.Printed())
	}
	shows("a rate", `(?m)^connections/s +0\.0$`)

	stop := make(chan struct{})
	dialled := make(chan struct{})
	go func() { // ends with the test
		defer close(dialled)
		for {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
			}
			if conn, err := net.DialTimeout("tcp", s.net+"10:18080", time.Second); err == nil {
				_ = conn.Close()
			}
		}
	}()
	shows("the connections that are made", `(?m)^connections/s +[1-9]`)
	close(stop)
	<-dialled

	s.manifest("more.yaml", tcpService("more", "NET.11", 18081, "NET.101"))
	shows("a Service that came, and how long it waited", `(?m)^ns/more:p/tcp4 +served +\d\S*s +\d\d:\d\d:\d\d$`)

	x.Resize(30, 4)
	shows("as much as there is room for", `(?s)^[^\n]{1,30}\n\nnode [^\n]*\n[^\n]{30}$`)
	x.Type("q")
	ends(t, "q", ended)
}

// ends waits for the end of a verb that a key is to end.
func ends(t *testing.T, key string, ended <-chan error) {
	t.Helper()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("%s ends it with %v", key, err)
		}
	case <-time.After(long):
		t.Fatalf("%s does not end it", key)
	}
}

// TestTopOnce prints one look where it is asked for that, or prints to no terminal; as JSON each
// look is a line.
func TestTopOnce(t *testing.T) {
	t.Parallel()
	s := begun(t)
	s.serving()
	for _, words := range []string{"top", "top --once"} {
		if got := s.verb(strings.Fields(words)...); got.code != 0 || strings.Count(got.out, "connections/s") != 1 || strings.Contains(got.out, "\x1b") || got.err != "" {
			t.Errorf("%s: %+v", words, got)
		}
	}
	var look struct {
		Kind        string
		Connections *float64 `json:"connectionsPerSecond"`
		Seconds     float64
	}
	got := s.verb("top", "--once", "-o", "json")
	if err := json.Unmarshal([]byte(got.out), &look); err != nil || strings.Count(got.out, "\n") != 1 || look.Kind != "Rates" || look.Connections == nil || look.Seconds <= 0 {
		t.Errorf("%v: %+v, read as %+v", err, got, look)
	}
	v := s.follows("top", "-o", "json")
	v.prints(`"kind":"Rates"`)
	v.prints(`"kind":"Rates"`)
	v.stop()
}

// TestTopWithoutItsHost goes on, says that no host answers, and shows the next one.
func TestTopWithoutItsHost(t *testing.T) {
	t.Parallel()
	s := begun(t)
	s.serving()
	x := terminaltest.New(t, 200, 20)
	ended := s.atTerminal(x, "top")
	has := func(what string) {
		t.Helper()
		eventually.SucceedsWithin(t, long, what, func() error {
			if got := screenOf(x); !strings.Contains(got, what) {
				return fmt.Errorf("the screen is\n%s", got)
			}
			return nil
		})
	}
	has("updates/s      0.0\n")
	s.stop()
	has("(q ends it): no host answers")
	s.start()
	has("(q ends it)\n")
	x.Type("\x03")
	ends(t, "Ctrl-C", ended)
}
