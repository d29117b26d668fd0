// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/phrase"
	"github.com/pointsman/pointsman/host/terminal"
)

// topEach is the time between two looks at the host.
const topEach = time.Second

func topVerb() *cobra.Command {
	var once bool
	c := &cobra.Command{
		Use:   "top",
		Short: "Show what the host and its dataplane are doing now, each second",
		Long: `Top shows what the host and its dataplane are doing: connections, changes and updates in a
second, how long an update takes, the plugin's memory and restarts, and the Services that wait
longest to be served as they are now, or did so within the last minute. What cannot be told is "-".

On a terminal it is shown anew each second, until q or Ctrl-C. Otherwise the table is printed
once, after a second; json and yaml are printed each second.`,
		Args: noWords(),
	}
	out := addFormat(c)
	c.Flags().BoolVar(&once, "once", false, "print it once, after a second")
	c.RunE = func(c *cobra.Command, _ []string) error {
		ctx, stop := untilInterrupt(c.Context())
		defer stop()
		w := c.OutOrStdout()
		switch {
		case *out == "table" && !once && terminal.Is(w):
			return topScreen(ctx, client(c), w)
		case *out == "table":
			once = true
		}
		return topLines(ctx, client(c), once, func(r rates) error { return printRates(w, *out, r) })
	}
	return c
}

// rates are what happened between two looks at a host. A nil rate cannot be told.
type rates struct {
	admin.Meta
	At          time.Time `json:"at"`
	Seconds     float64   `json:"seconds"` // between the two looks
	Node        string    `json:"node"`
	Mode        string    `json:"mode"`
	Dataplane   string    `json:"dataplane"`
	State       string    `json:"state"` // of its plugin
	PID         int       `json:"pid,omitempty"`
	Restarts    int       `json:"restarts"`
	MemoryBytes uint64    `json:"memoryBytes,omitempty"`

	Connections *float64 `json:"connectionsPerSecond"`
	Changes     *float64 `json:"changesPerSecond"`
	Updates     *float64 `json:"updatesPerSecond"`
	SyncMS      *float64 `json:"syncMilliseconds"` // of an update between the two looks, on average; null: there was none

	LastSyncMS float64      `json:"lastSyncMilliseconds"`
	Pending    int          `json:"pending"`
	Slowest    []admin.Wait `json:"slowest"`
}

// ratesBetween compares two looks at a host. A count of another host, of another dataplane or of
// another process has begun anew, and is compared with nothing.
func ratesBetween(before, now admin.Activity) rates {
	r := rates{
		Meta: admin.Meta{APIVersion: admin.APIVersion, Kind: "Rates"},
		At:   now.At, Seconds: now.At.Sub(before.At).Seconds(),
		Node: now.Node, Mode: now.Mode,
		Dataplane: now.Dataplane.Name, State: now.Dataplane.State, PID: now.Dataplane.PID,
		Restarts: now.Dataplane.Restarts, MemoryBytes: now.Dataplane.Memory,
		LastSyncMS: now.Sync.TookMS, Pending: now.Sync.Pending, Slowest: now.Slowest,
	}
	if r.Seconds <= 0 || !before.Began.Equal(now.Began) {
		return r
	}
	r.Changes = rate(before.Changes, now.Changes, r.Seconds)
	if before.Dataplane.Name != now.Dataplane.Name {
		return r
	}
	r.Updates = rate(before.Updates, now.Updates, r.Seconds)
	if n := now.Updates - before.Updates; now.Updates > before.Updates {
		each := 1000 * (now.SyncSeconds - before.SyncSeconds) / float64(n)
		r.SyncMS = &each
	}
	if before.Connections != nil && now.Connections != nil && before.Dataplane.PID == now.Dataplane.PID {
		r.Connections = rate(*before.Connections, *now.Connections, r.Seconds)
	}
	return r
}

// rate returns how much a count has grown in a second; nil: it began anew.
func rate(before, now uint64, seconds float64) *float64 {
	if now < before {
		return nil
	}
	r := float64(now-before) / seconds
	return &r
}

// topLines prints what happens each second, or once, until ctx ends.
func topLines(ctx context.Context, client *admin.Client, once bool, print func(rates) error) error {
	before, err := client.Activity(ctx)
	for err == nil {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(topEach):
		}
		var now admin.Activity
		if now, err = client.Activity(ctx); ctx.Err() != nil {
			return nil
		}
		if err == nil {
			err = print(ratesBetween(before, now))
		}
		if err == nil && once {
			return nil
		}
		before = now
	}
	return err
}

// printRates prints one look: of json a line, of yaml a document.
func printRates(w io.Writer, f format, r rates) error {
	switch f {
	case "json":
		return json.NewEncoder(w).Encode(r)
	case "yaml":
		fmt.Fprintln(w, "---")
	}
	return f.print(w, r, func(w io.Writer) { writeRates(w, r) })
}

// topScreen shows what happens each second, until q is typed or ctx ends. That the host does not
// answer any more is a thing to see, too.
func topScreen(ctx context.Context, client *admin.Client, w io.Writer) error {
	before, err := client.Activity(ctx)
	if err != nil {
		return err
	}
	keys, restore := terminal.Keys(os.Stdin)
	defer restore()
	shown := ratesBetween(before, before)
	fmt.Fprint(w, clearScreen)
	for {
		if err := draw(w, screen(shown, err, terminal.Colours(w))); err != nil {
			return err
		}
		if !nextLook(ctx, keys) {
			_, err := fmt.Fprintln(w) // for the prompt
			return err
		}
		var now admin.Activity
		if now, err = client.Activity(ctx); err == nil {
			shown, before = ratesBetween(before, now), now
		}
	}
}

// nextLook waits until it is time for the next look; false: there is to be none.
func nextLook(ctx context.Context, keys <-chan byte) bool {
	next := time.After(topEach)
	for {
		select {
		case <-ctx.Done():
			return false
		case key := <-keys:
			if key == 'q' || key == 'Q' {
				return false
			}
		case <-next:
			return true
		}
	}
}

// screen returns what is shown, line by line. err is why the host did not answer the last time.
func screen(r rates, err error, colours bool) []string {
	var text bytes.Buffer
	t := newTable(&text, colours)
	writeRates(t, r)
	_ = t.Flush() // a buffer takes all
	title := fmt.Sprintf("pointsman top, %s (q ends it)", r.At.Local().Format(time.TimeOnly))
	if err != nil {
		title += ": " + oneLineOf(err)
	}
	return append([]string{title, ""}, strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n")...)
}

// draw shows as many lines as the terminal has, and of each as much as it has columns.
func draw(w io.Writer, lines []string) error {
	columns, rows := terminal.Size(w)
	var picture strings.Builder
	picture.WriteString("\x1b[H") // the cursor to the top (ECMA-48)
	for i, line := range lines[:min(len(lines), rows)] {
		if i > 0 {
			picture.WriteByte('\n')
		}
		picture.WriteString("\x1b[K" + cut(line, columns)) // erased before, for behind the last column it would take a letter away
	}
	picture.WriteString("\x1b[J") // and what is left below
	_, err := io.WriteString(w, picture.String())
	return err
}

func writeRates(w io.Writer, r rates) {
	fmt.Fprintf(w, "node\t%s, mode %s\n", r.Node, r.Mode)
	fmt.Fprintf(w, "dataplane\t%s is %s, pid %s, %s, memory %s\n", r.Dataplane, paintState(w, r.State), cmp.Or(pidText(r.PID), "-"), phrase.Count(r.Restarts, "restart"), memoryText(r.MemoryBytes))
	fmt.Fprintf(w, "connections/s\t%s\n", rateText(r.Connections))
	fmt.Fprintf(w, "changes/s\t%s\n", rateText(r.Changes))
	fmt.Fprintf(w, "updates/s\t%s\n", rateText(r.Updates))
	fmt.Fprintf(w, "sync time\t%s; the last %.1f ms\n", eachText(r.SyncMS), r.LastSyncMS)
	fmt.Fprintf(w, "pending\t%d\n", r.Pending)
	if len(r.Slowest) > 0 {
		fmt.Fprintf(w, "\nSLOWEST\t%s\tWAITED\tSINCE\n", paintState(w, "STATE"))
	}
	for _, s := range r.Slowest {
		waited := time.Duration(s.Seconds * float64(time.Second))
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", s.Service, paintState(w, s.State), phrase.Round(waited), s.Since.Local().Format(time.TimeOnly))
	}
}

func rateText(r *float64) string {
	if r == nil {
		return "-"
	}
	return fmt.Sprintf("%.1f", *r)
}

func eachText(ms *float64) string {
	if ms == nil {
		return "-"
	}
	return fmt.Sprintf("%.1f ms for each update", *ms)
}

func memoryText(bytes uint64) string {
	if bytes == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20))
}
