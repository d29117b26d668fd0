// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pointsman/pointsman/plugins/userspace/relay/relaytest"
)

// silent is an endpoint that neither accepts nor refuses: its backlog is full.
func silent(t *testing.T, addr string) string {
	t.Helper()
	silentAt(t, addr)
	return addr
}

// silentAt makes the socket of one.
func silentAt(t *testing.T, addr string) (fd int) {
	t.Helper()
	domain, at := sockaddr(addrPortOf(addr))
	fd, err := unix.Socket(domain, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		t.Fatal(err)
	}
	if err := unix.Bind(fd, at); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	dial(t, addr) // the one connection that the backlog takes
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

// brokenNow returns why fd failed, if it did.
func brokenNow(fd uintptr) error {
	number, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR)
	if err == nil && number != 0 {
		err = unix.Errno(number)
	}
	return err
}

// TestIdleConnections: each that waits costs two descriptors and no goroutine.
func TestIdleConnections(t *testing.T) {
	many := 1000
	if os.Getenv("POINTSMAN_SOAK") != "" {
		many = 10_000
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil || limit.Cur < uint64(5*many) {
		t.Skipf("needs %d open files (ulimit -n): each connection has four ends here", 5*many)
	}
	front, back := at(1, 8000), at(2, 8000)
	l, err := net.Listen("tcp", back)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s := serve(t, svc("web", "cluster-ip "+front, back))
	goroutines, files := runtime.NumGoroutine(), relaytest.Descriptors(t)
	var clients, endpoints []*net.TCPConn
	for range many {
		clients = append(clients, dial(t, front))
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		endpoints = append(endpoints, c.(*net.TCPConn))
		echoes(t, clients[len(clients)-1], endpoints[len(endpoints)-1])
	}
	s.carries(many)
	if n := runtime.NumGoroutine() - goroutines; n > 10 { // other tests' may come and go
		t.Errorf("%d goroutines for %d connections", n, many)
	}
	if n := relaytest.Descriptors(t) - files - 2*many; n > 2*many+10 {
		t.Errorf("%d descriptors for %d connections", n, many)
	}
	balanced(t, s, many)
	for i, c := range clients {
		echoes(t, c, endpoints[i])
		c.Close()
		endpoints[i].Close()
	}
	s.carries(0)
}

// echoes has a client and its endpoint send something to each other.
func echoes(t *testing.T, client, server net.Conn) {
	t.Helper()
	for _, pair := range [][2]net.Conn{{client, server}, {server, client}} {
		fmt.Fprint(pair[0], "x")
		_ = pair[1].SetReadDeadline(time.Now().Add(relaytest.Timeout))
		if _, err := io.ReadFull(pair[1], make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
}

// balanced fails the test unless every loop has its share of so many connections.
func balanced(t *testing.T, s *rig, many int) {
	t.Helper()
	fair := many / len(s.loops.all)
	for i, l := range s.loops.all {
		if n := int(l.pairs.Load()); n < fair/2 || n > 2*fair {
			t.Errorf("loop %d of %d has %d connections of %d", i, len(s.loops.all), n, many)
		}
	}
}

// A noted says that its time has come.
type noted struct{ times int }

func (n *noted) onTime() { n.times++ }

// TestTimers leave in any order, and those that stay run once, when they are due.
func TestTimers(t *testing.T) {
	var ts timers
	all := make([]noted, 5)
	for i := range all {
		ts.start(&all[i], time.Hour)
	}
	for _, i := range []int{4, 0, 2} {
		ts.stop(&all[i])
		ts.stop(&all[i])
	}
	now := time.Now()
	ts.start(&all[3], 2*time.Hour)
	for _, after := range []time.Duration{0, 30 * time.Minute, 90 * time.Minute, 91 * time.Minute} {
		ts.run(now.Add(after))
	}
	if want := []noted{{}, {1}, {}, {}, {}}; !slices.Equal(all, want) {
		t.Errorf("they ran %v times, not %v", all, want)
	}
	if at := ts.wakeAt.Sub(now); at < time.Hour || at > 3*time.Hour {
		t.Errorf("the loop wakes %s later for the one that is left", at)
	}
	if ts.run(now.Add(3 * time.Hour)); all[3].times != 1 || !ts.wakeAt.IsZero() {
		t.Errorf("the last ran %d times, and the loop wakes at %s", all[3].times, ts.wakeAt)
	}
}

// TestOutOfDescriptors: clients wait while there are none, and are served when there are
// again.
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
	startRelay(t, cmd, front)
	var all []*net.TCPConn
	for range few {
		all = append(all, dial(t, front))
	}
	served := make(chan error, 1)
	go func() { // ends when the last of all is served
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
		t.Error("the one that waited: ", err)
	}
}
