// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/host/terminal/terminaltest"
	"github.com/pointsman/pointsman/test/eventually"
)

// TestDraw cuts what is shown to the window: a line that were too long would shift those below it.
func TestDraw(t *testing.T) {
	pty := terminaltest.New(t, 8, 3)
	if err := draw(pty.Program, []string{"äöüäöüäöü", "", "third", "fourth"}); err != nil {
		t.Fatal(err)
	}
	const want = "\x1b[H\x1b[Käöüäöüäö\r\n\x1b[K\r\n\x1b[Kthird\x1b[J"
	eventually.Succeeds(t, "it is drawn", func() error {
		if got := pty.Printed(); got != want {
			return fmt.Errorf("drawn %q, want %q", got, want)
		}
		return nil
	})
}

// TestColoursOfAVerb are for a terminal, and not where the user refuses them.
func TestColoursOfAVerb(t *testing.T) {
	dir := t.TempDir()
	fakePlugin(t, dir, "acme", `echo '{"name":"acme","version":"7"}'`)
	words := []string{"plugin", "list", "--plugin-dir", dir, "--admin-socket", dir + "/nobody.sock"}
	for _, refused := range []string{"", "1"} {
		t.Setenv("TERM", "xterm")
		t.Setenv("NO_COLOR", refused)
		pty := terminaltest.New(t, 200, 20)
		if exit := execute(words, pty.Program, pty.Program); exit != exitOK {
			t.Fatalf("exit %d: %s", exit, pty.Printed())
		}
		eventually.Succeeds(t, "it is listed", func() error {
			got := pty.Printed()
			if !strings.Contains(got, "acme") || strings.Contains(got, "\x1b[39munused\x1b[39m") != (refused == "") || strings.Contains(got, "\x1b") != (refused == "") {
				return fmt.Errorf("NO_COLOR=%s: printed %q", refused, got)
			}
			return nil
		})
		if _, printed, _ := do(t, words...); strings.Contains(printed, "\x1b") {
			t.Errorf("where it is no terminal: %q", printed)
		}
	}
}
