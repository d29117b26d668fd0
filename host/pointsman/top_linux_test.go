// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
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
