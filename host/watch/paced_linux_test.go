// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pointsman/pointsman/test/eventually"
)

// loopback returns both ends of a connection; the first is read with pauses.
func loopback(t *testing.T, pause time.Duration) (*paced, net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dial := pacedDial(func() time.Duration { return pause })
	c, err := dial(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	return c.(*paced), server
}

// readable asks the kernel, as the poller of Go does, whether c can be read.
func readable(t *testing.T, c net.Conn) bool {
	t.Helper()
	raw, err := c.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var asked []unix.PollFd
	if err := raw.Control(func(fd uintptr) {
		asked = []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		_, err = unix.Poll(asked, 0)
	}); err != nil || asked == nil {
		t.Fatal(err)
	}
	return asked[0].Revents&unix.POLLIN != 0
}

// emptyOften reads c until the next read pauses.
func emptyOften(t *testing.T, c *paced, server net.Conn) {
	t.Helper()
	room := make([]byte, 4<<10)
	for range pacedBurst + 1 {
		if _, err := server.Write(make([]byte, oneEvent)); err != nil {
			t.Fatal(err)
		}
		if n, err := c.Read(room); n != oneEvent {
			t.Fatalf("read %d bytes: %v", n, err)
		}
	}
}

// TestPacedQuiet: during a pause the kernel tells nothing of what comes, however many packets;
// all of it is read after the pause, and from then on the kernel tells of each byte again.
func TestPacedQuiet(t *testing.T) {
	const pause, events = 2 * time.Second, 5
	c, server := loopback(t, pause)
	emptyOften(t, c, server)
	began := time.Now()
	all := make(chan int)
	go func() { // ends with the read
		room := make([]byte, 64<<10)
		n, err := c.Read(room)
		if err != nil {
			t.Error(err)
		}
		all <- n
	}()
	time.Sleep(pause / 10) // it pauses by now
	for range events {
		if _, err := server.Write(make([]byte, oneEvent)); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(pause / 10) // they have come by now
	if took := time.Since(began); took < pause/2 && readable(t, c.Conn) {
		t.Errorf("the kernel tells of what came in a pause of %s, %s after it began", pause, took)
	}
	if n := <-all; n != events*oneEvent {
		t.Errorf("%d bytes were read after the pause, want %d", n, events*oneEvent)
	}
	if _, err := server.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "the kernel tells of a byte", func() bool { return readable(t, c.Conn) })
}

// TestPacedEnded: what was sent before the other side closed is read, and then that it did.
func TestPacedEnded(t *testing.T) {
	c, server := loopback(t, 300*time.Millisecond)
	emptyOften(t, c, server)
	time.AfterFunc(100*time.Millisecond, func() {
		_, _ = server.Write(make([]byte, oneEvent))
		server.Close()
	})
	rest, err := io.ReadAll(c)
	if err != nil || len(rest) != oneEvent {
		t.Errorf("read %d bytes: %v", len(rest), err)
	}
}
