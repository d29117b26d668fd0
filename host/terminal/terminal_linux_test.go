// SPDX-License-Identifier: Apache-2.0

package terminal

import (
	"bytes"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pointsman/pointsman/host/terminal/terminaltest"
)

// TestColours are for a terminal that has them and a user who wants them.
func TestColours(t *testing.T) {
	pty := terminaltest.New(t, 80, 24).Program
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	for _, c := range []struct{ noColour, term string }{{"", "xterm"}, {"1", "xterm"}, {"", "dumb"}} {
		t.Setenv("NO_COLOR", c.noColour)
		t.Setenv("TERM", c.term)
		if want := c.noColour == "" && c.term != "dumb"; Colours(pty) != want {
			t.Errorf("NO_COLOR=%s TERM=%s: colours on a terminal: %t, want %t", c.noColour, c.term, !want, want)
		}
		if Colours(null) || Colours(new(bytes.Buffer)) {
			t.Errorf("NO_COLOR=%s TERM=%s: colours on what is no terminal", c.noColour, c.term)
		}
	}
}

// TestSize is the window's, also after that has changed.
func TestSize(t *testing.T) {
	pty := terminaltest.New(t, 100, 30)
	for _, want := range [][2]int{{100, 30}, {40, 7}} {
		pty.Resize(want[0], want[1])
		if columns, rows := Size(pty.Program); columns != want[0] || rows != want[1] {
			t.Errorf("%d columns and %d rows, want %v", columns, rows, want)
		}
	}
	pty.Resize(0, 0) // as a serial line says that does not know
	if columns, rows := Size(pty.Program); columns != 80 || rows != 24 {
		t.Errorf("of a terminal that does not know: %d columns and %d rows", columns, rows)
	}
	if columns, rows := Size(new(bytes.Buffer)); columns != 80 || rows != 24 {
		t.Errorf("of no terminal: %d columns and %d rows", columns, rows)
	}
}

// TestKeys come one by one, and the terminal is then as it was.
func TestKeys(t *testing.T) {
	pty := terminaltest.New(t, 80, 24)
	before := settings(t, pty.Program)
	keys, restore := Keys(pty.Program)
	if within := settings(t, pty.Program); within.Lflag&unix.ICANON != 0 || within.Lflag&unix.ECHO != 0 || within.Lflag&unix.ISIG == 0 {
		t.Errorf("flags %x: keys are shown or wait for a line, or Ctrl-C does not interrupt", within.Lflag)
	}
	pty.Type("xq")
	if first, second := <-keys, <-keys; first != 'x' || second != 'q' {
		t.Errorf("typed xq, read %c%c", first, second)
	}
	restore()
	if after := settings(t, pty.Program); after != before {
		t.Errorf("it is left as %+v, was %+v", after, before)
	}
	pty.Type("\n") // ends the reader
}

// TestNoKeys are typed at what is no terminal, and its content stays where it is.
func TestNoKeys(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := w.WriteString("q"); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	keys, restore := Keys(r)
	defer restore()
	rest := make([]byte, 1)
	if n, err := r.Read(rest); n != 1 || err != nil {
		t.Errorf("what was written was read by another: %v", err)
	}
	select {
	case key := <-keys:
		t.Errorf("key %c", key)
	default:
	}
}

func settings(t *testing.T, f *os.File) unix.Termios {
	t.Helper()
	s, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return *s
}
