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

// A table aligns its cells, and has colours where it is printed on a terminal that has them.
type table struct {
	*tabwriter.Writer
	colours bool
}

func newTable(w io.Writer, colours bool) table {
	return table{tabwriter.NewWriter(w, 0, 0, 2, ' ', 0), colours}
}

// tableFor returns a table that is printed to w, in colours if w is a terminal that has them and the
// user does not refuse them by NO_COLOR (https://no-color.org).
func tableFor(w io.Writer) table {
	return newTable(w, isTerminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb")
}

// isTerminal reports whether w is a terminal.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// paint returns text in green, yellow or red, by the result of a check, if the table w has colours.
// All cells of a column are painted or none: the codes (SGR of ECMA-48) are equally long, so the
// columns stay aligned.
func paint(w io.Writer, result doctor.Result, text string) string {
	if t, ok := w.(table); !ok || !t.colours {
		return text
	}
	const usual = 39
	colour, known := map[doctor.Result]int{doctor.OK: 32, doctor.Warn: 33, doctor.Fail: 31}[result]
	if !known {
		colour = usual
	}
	return fmt.Sprintf("\x1b[%dm%s\x1b[%dm", colour, text, usual)
}
