// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"text/tabwriter"

	"golang.org/x/term"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/health"
	"github.com/pointsman/pointsman/sdk"
)

// A colour is that of letters on a terminal, by its number in ECMA-48 (SGR).
type colour int

const (
	red    colour = 31 // it is not served, or has failed
	green  colour = 32 // it is as it should be
	yellow colour = 33 // it is on its way, or to be looked at
	usual  colour = 39 // the terminal's own
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

// paint returns text in a colour, where the table w has colours. Where one cell of a column that
// others stand behind is painted, all are: the codes of each are as long, take no room on the
// screen, and so leave the columns aligned.
func paint(w io.Writer, c colour, text string) string {
	if t, ok := w.(table); !ok || !t.colours {
		return text
	}
	return fmt.Sprintf("\x1b[%dm%s\x1b[%dm", c, text, usual)
}

// paintState returns a state, result or verdict in the colour that it has everywhere.
func paintState[S ~string](w io.Writer, state S) string {
	return paint(w, colourOf(string(state)), string(state))
}

func colourOf(state string) colour {
	switch state {
	case health.Served, "serving", string(admin.OK), sdk.Forward.String():
		return green
	case health.Pending, health.NoEndpoints, "starting", "trying", "suspect", "waiting", string(admin.Warn), "warning", admin.VerdictCannotTell:
		return yellow
	case health.Failed, health.Refused, health.Withheld, health.Quarantined, health.Conflict, health.Invalid, notServed,
		string(admin.Fail), sdk.Reject.String(), sdk.Drop.String():
		return red
	}
	return usual
}
