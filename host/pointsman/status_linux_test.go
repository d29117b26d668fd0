// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pointsman/pointsman/host/admin"
)

// answering serves a status on an admin socket until the test ends, and returns the path of the socket.
func answering(t *testing.T, status func() admin.Status) string {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "admin.sock")
	l, err := admin.Listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- admin.Serve(ctx, l, admin.Backend{Status: status}) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return socket
}

// pseudoTerminal returns both ends of a pty(7): what a program prints on screen is read from master.
func pseudoTerminal(t *testing.T) (master, screen *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("needs pseudo-terminals: %v", err)
	}
	t.Cleanup(func() { _ = master.Close() })
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		screen, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		t.Skipf("needs pseudo-terminals: %v", err)
	}
	t.Cleanup(func() { _ = screen.Close() })
	return master, screen
}

// TestWatchStatus prints the status again and again: on a terminal on an empty screen and in colours
// unless NO_COLOR is set, in a pipe with an empty line between two of them.
func TestWatchStatus(t *testing.T) {
	socket := answering(t, func() admin.Status {
		s := well()
		s.Healthy = true
		return s
	})
	read, pipe, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	defer pipe.Close()
	master, screen := pseudoTerminal(t)
	for name, c := range map[string]struct {
		in, out       *os.File
		noColour      string
		first, second string // lines with which a status begins and ends
	}{
		"terminal":                 {master, screen, "", clearScreen + "node", "all        \x1b[32mis well\x1b[39m"},
		"terminal without colours": {master, screen, "1", clearScreen + "node", "all        is well"},
		"pipe":                     {read, pipe, "", "node", "all        is well"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("TERM", "xterm")
			t.Setenv("NO_COLOR", c.noColour)
			ctx, cancel := context.WithCancel(t.Context())
			root := rootVerb()
			root.SetArgs([]string{"status", "--watch", "--admin-socket", socket})
			root.SetOut(c.out)
			ended := make(chan error, 1)
			go func() { ended <- root.ExecuteContext(ctx) }()
			lines := bufio.NewScanner(c.in)
			for range 2 {
				if !lines.Scan() || !strings.HasPrefix(lines.Text(), c.first) {
					t.Fatalf("begins with %q, want %q", lines.Text(), c.first)
				}
				for lines.Text() != c.second && lines.Scan() {
				}
				if c.in == read {
					lines.Scan()
				}
			}
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}
