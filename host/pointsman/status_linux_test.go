// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

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

// TestUntilWell waits for a node to be well and to stay so, and says what changes meanwhile.
func TestUntilWell(t *testing.T) {
	warned := func(codes ...string) admin.Status {
		s := well()
		for _, code := range codes {
			s.Warnings = append(s.Warnings, admin.Warning{Code: code, Text: "since " + time.Now().String()})
		}
		s.Healthy = len(codes) == 0
		return s
	}
	pending := warned()
	pending.Sync.Pending = 3
	for name, c := range map[string]struct {
		answers []admin.Status // the last one for ever; none: no host is there
		limit   time.Duration
		states  string // the beginnings of what it says
		healthy bool
		away    bool
	}{
		"well at once":             {[]admin.Status{warned()}, 0, "well", true, false},
		"well in the end":          {[]admin.Status{warned("W001"), warned("W001"), warned("W001", "W003"), pending, pending, warned()}, time.Minute, "not well: W001 since|not well: W001 since|well, but|well", true, false},
		"not well for long":        {[]admin.Status{warned(), warned("W004"), warned()}, time.Minute, "well|not well: W004|well", true, false},
		"well, and changes come":   {[]admin.Status{warned(), pending, pending}, 0, "well", true, false},
		"not well within the time": {[]admin.Status{warned("W001")}, 250 * time.Millisecond, "not well: W001", false, false},
		"no host":                  {nil, 250 * time.Millisecond, "no host answers", false, true},
	} {
		t.Run(name, func(t *testing.T) {
			socket, asked := "/none/at/all", 0
			if c.answers != nil {
				socket = answering(t, func() admin.Status {
					asked++
					return c.answers[min(asked, len(c.answers))-1]
				})
			}
			var said []string
			s, err := waiting{admin.NewClient(socket), c.limit, 150 * time.Millisecond, func(state string) { said = append(said, state) }}.wait(t.Context())
			if errors.Is(err, admin.ErrUnreachable) != c.away || s.Healthy != c.healthy {
				t.Errorf("it ends with %+v, %v", s, err)
			}
			if !slices.EqualFunc(said, strings.Split(c.states, "|"), strings.HasPrefix) {
				t.Errorf("it says %q, want %q", said, c.states)
			}
		})
	}
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
