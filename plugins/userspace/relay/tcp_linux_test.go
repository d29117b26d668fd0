// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/test/relaytest"
)

// If an endpoint neither accepts nor refuses, the next one is tried.
func TestSilentEndpoint(t *testing.T) {
	front, back := at(1, 8000), at(3, 8000)
	endpoint(t, back, nil)
	silentAt(t, at(2, 8000))
	s := serve(t, svc("web", "cluster-ip "+front, at(2, 8000)+" "+back))
	for range 2 { // the round robin begins with the silent endpoint once
		if got, err := ask(front); got != back {
			t.Fatalf("%q, %v", got, err)
		}
	}
	if s.Counters.DialErrors.Load() == 0 {
		t.Error("the silent endpoint was never tried")
	}
}

// A single endpoint has more time to accept, for example on a busy machine.
func TestOnlyEndpoint(t *testing.T) {
	front, back := at(1, 8000), at(2, 8000)
	fd := silentAt(t, back)
	s := serve(t, svc("web", "cluster-ip "+front, back))
	dial(t, front)
	time.AfterFunc(2*dialTimeouts[0], func() { // another endpoint would have been tried by then
		if taken, _, err := unix.Accept(fd); err == nil {
			unix.Close(taken)
		}
	})
	eventually(t, func() error {
		if open := s.Counters.Established.Load(); open != 1 {
			return fmt.Errorf("%d connections are established", open)
		}
		return nil
	})
	if n := s.Counters.DialErrors.Load(); n != 0 {
		t.Errorf("%d attempts failed", n)
	}
}

// A connection counts as open while the relay tries endpoints for it, until its client resets it.
func TestConnectionWithoutEndpoint(t *testing.T) {
	front := at(1, 8000)
	silentAt(t, at(2, 8000))
	s := serve(t, svc("web", "cluster-ip "+front, at(2, 8000)))
	c := dial(t, front)
	fmt.Fprint(c, "x")
	c.CloseWrite() // does not end it
	s.carries(1)
	if n := s.Counters.Established.Load(); n != 0 {
		t.Errorf("%d connections have an endpoint that never answered", n)
	}
	abort(c)
	s.carries(0)
}

// If an endpoint answers before it has read everything, and then resets the connection, the client gets the answer and then the
// reset.
func TestAnswerBeforeReset(t *testing.T) {
	front, back := at(1, 8000), at(2, 8000)
	answered := make(chan struct{})
	endpoint(t, back, func(c *net.TCPConn) {
		_, _ = c.Read(make([]byte, 1))
		fmt.Fprint(c, "too much")
		<-answered // the reset would drop bytes in flight
		_ = c.SetLinger(0)
	})
	serve(t, svc("web", "cluster-ip "+front, back))
	c := dial(t, front)
	fmt.Fprint(c, strings.Repeat("x", 1<<16))
	if _, err := io.ReadFull(c, make([]byte, len("too much"))); err != nil {
		t.Fatal(err)
	}
	close(answered)
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the client sees %v", err)
	}
}

// If a client resets a connection of which it has closed its side, the endpoint sees the reset, although it sends nothing.
func TestResetAfterHalfClose(t *testing.T) {
	front, back := at(1, 8000), at(2, 8000)
	heard, seen := make(chan struct{}), make(chan bool, 1)
	endpoint(t, back, func(c *net.TCPConn) {
		_, _ = io.ReadAll(c)
		close(heard)
		seen <- awaitReset(c)
	})
	s := serve(t, svc("web", "cluster-ip "+front, back))
	c := dial(t, front)
	fmt.Fprint(c, "all")
	c.CloseWrite()
	<-heard
	abort(c)
	if !<-seen {
		t.Error("the endpoint saw no reset")
	}
	s.carries(0)
}

// silentAt starts an endpoint that neither accepts nor refuses, because its backlog is full, and returns its socket.
func silentAt(t *testing.T, addr string) (fd int) {
	t.Helper()
	at := addrPortOf(addr)
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		t.Fatal(err)
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	dial(t, addr) // fills the backlog
	eventually(t, func() error {
		c, err := net.DialTimeout("tcp", addr, 50*time.Millisecond)
		if err != nil {
			return nil
		}
		t.Cleanup(func() { c.Close() })
		return fmt.Errorf("it still accepts")
	})
	return fd
}

// While there are no free descriptors clients wait, and are served afterwards.
func TestOutOfDescriptors(t *testing.T) {
	relaytest.NeedsLoopback(t)
	if _, err := exec.LookPath("prlimit"); err != nil {
		t.Skip("needs prlimit: ", err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	const few = 40
	front, back := at(1, 8000), at(2, 8000)
	endpoint(t, back, echo)
	cmd := exec.Command("prlimit", "--nofile="+strconv.Itoa(few)+":"+strconv.Itoa(few), self)
	cmd.Env = append(os.Environ(), asRelay+"="+front+" "+back)
	stdin, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stdin.Close(); _ = cmd.Wait() })
	eventually(t, func() error {
		c, err := net.Dial("tcp", front)
		if err == nil {
			c.Close()
		}
		return err
	})
	var all []*net.TCPConn
	for range few {
		all = append(all, dial(t, front))
	}
	served := make(chan error, 1)
	go func() { // ends when the last client is served
		_, err := fmt.Fprint(all[few-1], "x")
		if err == nil {
			_, err = io.ReadFull(all[few-1], make([]byte, 1))
		}
		served <- err
	}()
	for _, c := range all[:few-1] {
		c.Close()
	}
	if err := <-served; err != nil {
		t.Error("the client that waited: ", err)
	}
}

// Close accepts the connections that wait in the listener, which the kernel would reset.
func TestCloseServesWaitingClients(t *testing.T) {
	relaytest.NeedsLoopback(t)
	front, back := at(1, 8000), at(2, 8000)
	endpoint(t, back, echo)
	r := New()
	t.Cleanup(r.Stop)
	value := svc("web", "cluster-ip "+front, back)
	value.Normalize()
	socket, err := r.Listen(t.Context(), sdk.TCP, value.Frontends[0].Addr)
	if err != nil {
		t.Fatal(err)
	}
	var callers []*net.TCPConn
	for range 20 {
		c := dial(t, front)
		fmt.Fprint(c, "x")
		callers = append(callers, c)
	}
	socket.Serve(&Target{NewService(value), value.Frontends[0]})
	socket.Close()
	if open := r.Counters.Open(); open != len(callers) {
		t.Errorf("%d connections are open, want %d: a drain would not wait for them", open, len(callers))
	}
	for i, c := range callers {
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Errorf("client %d: %v", i, err)
		}
	}
	if c, err := net.Dial("tcp", front); err == nil {
		c.Close()
		t.Error("a client was accepted after Close")
	}
}
