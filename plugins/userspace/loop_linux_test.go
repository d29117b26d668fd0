// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// silent is an endpoint that says nothing to who calls: as many wait as it lets
// wait.
func silent(t *testing.T, addr string) string {
	t.Helper()
	silentAt(t, addr)
	return addr
}

// silentAt is silent's socket.
func silentAt(t *testing.T, addr string) (fd int) {
	t.Helper()
	domain, at := sockaddr(place{addr: addrPortOf(addr)})
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
	dial(t, addr) // the one who may wait
	eventually(t, func() error {
		c, err := net.DialTimeout("tcp", addr, 50*time.Millisecond)
		if err != nil {
			return nil
		}
		t.Cleanup(func() { c.Close() })
		return fmt.Errorf("it still answers")
	})
	return fd
}

// brokenNow is why fd is broken, if it is.
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
	s := onStage(t, svc("web", "cluster-ip "+front, back))
	goroutines, files := runtime.NumGoroutine(), descriptors(t)
	var callers, endpoints []*net.TCPConn
	for range many {
		callers = append(callers, dial(t, front))
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		endpoints = append(endpoints, c.(*net.TCPConn))
		echoes(t, callers[len(callers)-1], endpoints[len(endpoints)-1])
	}
	if n := s.Report().Flows; n != many {
		t.Errorf("%d connections are reported", n)
	}
	if n := runtime.NumGoroutine() - goroutines; n > 10 { // other tests' may come and go
		t.Errorf("%d goroutines for %d connections", n, many)
	}
	if n := descriptors(t) - files - 2*many; n > 2*many+10 {
		t.Errorf("%d descriptors for %d connections", n, many)
	}
	shared(t, s, many)
	for i, c := range callers {
		echoes(t, c, endpoints[i])
		c.Close()
		endpoints[i].Close()
	}
	s.empty()
}

// echoes has a caller and its endpoint say something to each other.
func echoes(t *testing.T, caller, endpoint net.Conn) {
	t.Helper()
	for _, pair := range [][2]net.Conn{{caller, endpoint}, {endpoint, caller}} {
		fmt.Fprint(pair[0], "x")
		_ = pair[1].SetReadDeadline(time.Now().Add(patience))
		if _, err := io.ReadFull(pair[1], make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
}

// shared fails the test unless every loop has its share of so many connections.
func shared(t *testing.T, s *stage, many int) {
	t.Helper()
	fair := many / len(s.relay.loops.all)
	for i, l := range s.relay.loops.all {
		if n := int(l.links.Load()); n < fair/2 || n > 2*fair {
			t.Errorf("loop %d of %d has %d connections of %d", i, len(s.relay.loops.all), n, many)
		}
	}
}

// TestSlots: an event of who had a slot before is nobody's.
func TestSlots(t *testing.T) {
	var s slots
	if s.find(ticket{}) != nil {
		t.Error("the zero ticket is somebody's")
	}
	a, b := &end{}, &end{}
	first := s.put(a)
	s.drop(first)
	s.drop(first)
	second := s.put(b)
	if first.slot != second.slot {
		t.Errorf("slot %d was not used again, but %d", first.slot, second.slot)
	}
	if got := s.find(first); got != nil {
		t.Errorf("an old ticket finds %v", got)
	}
	if s.find(second) != watcher(b) {
		t.Error("the new ticket does not find who has it")
	}
}

// TestWaitingCalls: who is answered leaves, in any order.
func TestWaitingCalls(t *testing.T) {
	var c clock
	var links []*link
	for range 5 {
		k := &link{call: &call{}}
		c.await(k, time.Hour)
		links = append(links, k)
	}
	for left, i := range []int{4, 0, 2, 1, 3} {
		c.stopWaiting(links[i].call)
		c.stopWaiting(links[i].call)
		if len(c.dialing) != 4-left {
			t.Fatalf("%d wait after %d left", len(c.dialing), left+1)
		}
		for index, k := range c.dialing {
			if k.call.index != index {
				t.Fatalf("one at %d believes to be at %d", index, k.call.index)
			}
		}
	}
}

// TestOutOfDescriptors: callers wait while there are none, and are served when there
// are again.
func TestOutOfDescriptors(t *testing.T) {
	needsLoopback(t)
	if _, err := exec.LookPath("prlimit"); err != nil {
		t.Skip("needs prlimit: ", err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	const few = 40
	front, back := at(1, 8000), at(2, 8000)
	speaker(t, back, echo)
	cmd := exec.Command("prlimit", "--nofile="+strconv.Itoa(few)+":"+strconv.Itoa(few), self)
	cmd.Env = append(os.Environ(), asRelay+"="+front+" "+back)
	start(t, cmd, front)
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
		t.Error("the one who waited: ", err)
	}
}
