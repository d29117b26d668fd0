// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"text/tabwriter"

	"golang.org/x/term"

	"github.com/pointsman/pointsman/host/doctor"
)

// A table aligns its cells. It has colours on a terminal, unless the user declines them by NO_COLOR
// (https://no-color.org) or the terminal is dumb.
type table struct {
	*tabwriter.Writer
	hasColours bool
}

func newTable(w io.Writer) table {
	colours := isTerminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	return table{tabwriter.NewWriter(w, 0, 0, 2, ' ', 0), colours}
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// colours are codes of SGR (ECMA-48): green, yellow and red. Any other result has the default colour.
var colours = map[doctor.Result]int{doctor.OK: 32, doctor.Warn: 33, doctor.Fail: 31, doctor.Unknown: 39, "": 39}

// paint returns text in the colour of the result, if w is a table with colours. Either all cells of a
// column are painted or none: all codes have the same length, so the columns stay aligned.
func paint(w io.Writer, result doctor.Result, text string) string {
	if t, ok := w.(table); !ok || !t.hasColours {
		return text
	}
	return fmt.Sprintf("\x1b[%dm%s\x1b[39m", colours[result], text)
}
