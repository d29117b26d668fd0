// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"
)

// figures are what the tests measured, for the table at their end. Times depend on what
// else the machine does; connections that fail do not.
type figures struct {
	mu    sync.Mutex // guards what follows
	loads []string
	times []string
}

// load notes how callers fared. silence is the longest of a kept connection as an observer
// met it, which does not wait for the callers' and the swap's processors; stall is as those
// met it that do.
func (f *figures) load(what string, fresh, perSecond, failed int, silence string, stall, longest time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.loads = append(f.loads, fmt.Sprintf("%s\t%d\t%d\t%d\t%s\t%s\t%s", what, fresh, perSecond, failed, silence, stall.Round(time.Millisecond), longest.Round(time.Millisecond)))
}

// time notes how long something took, and what it is meant to take on a machine that
// does nothing else; zero: nothing is said of that.
func (f *figures) time(what string, took, meant time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	goal := "-"
	if meant > 0 {
		goal = "≤ " + meant.String()
	}
	f.times = append(f.times, fmt.Sprintf("%s\t%s\t%s", what, took.Round(time.Millisecond), goal))
}

// keep writes the tables to a file.
func (f *figures) keep(file string) error {
	var text strings.Builder
	f.print(&text)
	return os.WriteFile(file, []byte(text.String()), 0o644)
}

// print writes the tables.
func (f *figures) print(w io.Writer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, t := range []struct {
		head string
		rows []string
	}{
		{"TRAFFIC DURING\tNEW CONNECTIONS\tA SECOND\tFAILED OR LOST\tLONGEST SILENCE (≤ 50ms)\tWITH THE CALLERS' OWN WAIT\tLONGEST ANSWER", f.loads},
		{"TIME\tTOOK\tMEANT", f.times},
	} {
		if len(t.rows) > 0 {
			columns := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
			fmt.Fprintf(columns, "\n%s\n%s\n", t.head, strings.Join(slices.Sorted(slices.Values(t.rows)), "\n"))
			_ = columns.Flush() // what it goes to takes everything, or there is nothing to report to
		}
	}
}
