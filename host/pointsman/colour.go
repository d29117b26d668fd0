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
	f, ok := w.(*os.File)
	colours := ok && term.IsTerminal(int(f.Fd())) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	return table{tabwriter.NewWriter(w, 0, 0, 2, ' ', 0), colours}
}

// paint returns text in the colour of the result, if w is a table with colours: green, yellow, red, or the default.
// Either all cells of a column are painted or none: all codes (SGR of ECMA-48) have the same length, so the columns
// stay aligned.
func paint(w io.Writer, result doctor.Result, text string) string {
	if t, ok := w.(table); !ok || !t.hasColours {
		return text
	}
	colour, ok := map[doctor.Result]int{doctor.OK: 32, doctor.Warn: 33, doctor.Fail: 31}[result]
	if !ok {
		colour = 39
	}
	return fmt.Sprintf("\x1b[%dm%s\x1b[39m", colour, text)
}
