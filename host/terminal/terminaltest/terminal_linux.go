// SPDX-License-Identifier: Apache-2.0

// Package terminaltest makes terminals for tests.
package terminaltest

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// A Terminal is a pseudo-terminal (pts(4)): what a program that has Program as its input and output
// sees as one, and what the test types and reads.
type Terminal struct {
	Program *os.File

	t      testing.TB
	master *os.File

	mu   sync.Mutex // guards read
	read strings.Builder
}

// New makes a terminal of that size, until the test ends.
func New(t testing.TB, columns, rows int) *Terminal {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("needs pseudo-terminals: %v", err)
	}
	fd := int(master.Fd())
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	var program *os.File
	if err == nil {
		program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		_ = master.Close()
		t.Skipf("needs pseudo-terminals: %v", err)
	}
	x := &Terminal{Program: program, t: t, master: master}
	x.Resize(columns, rows)
	done := make(chan struct{})
	go func() { // ends when no process has the terminal open any more
		defer close(done)
		x.listen()
	}()
	t.Cleanup(func() {
		if err := program.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
			t.Error(err)
		}
		<-done
		if err := master.Close(); err != nil {
			t.Error(err)
		}
	})
	return x
}

// listen notes what is printed. A terminal that no process has open any more answers EIO.
func (x *Terminal) listen() {
	for buffer := make([]byte, 4096); ; {
		n, err := x.master.Read(buffer)
		x.mu.Lock()
		x.read.Write(buffer[:n])
		x.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// Printed returns all that was printed so far.
func (x *Terminal) Printed() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.read.String()
}

// Type types keys.
func (x *Terminal) Type(keys string) {
	x.t.Helper()
	if _, err := x.master.WriteString(keys); err != nil {
		x.t.Fatal(err)
	}
}

// Resize gives the terminal another size.
func (x *Terminal) Resize(columns, rows int) {
	x.t.Helper()
	if err := unix.IoctlSetWinsize(int(x.master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: uint16(columns), Row: uint16(rows)}); err != nil {
		x.t.Fatal(err)
	}
}
