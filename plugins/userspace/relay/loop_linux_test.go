// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pointsman/pointsman/test/relaytest"
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
