// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/doctor"
	"github.com/pointsman/pointsman/host/phrase"
)

// shownProblems limits the lines of one kind in a table.
const shownProblems = 10

func statusVerb() *cobra.Command {
	var wait, until time.Duration
	var watch bool
	c := &cobra.Command{
		Use:   "status",
		Short: "Show the state of the running host",
		Args:  cobra.NoArgs,
	}
	out := addFormat(c)
	c.Flags().DurationVar(&wait, "wait", 0, "wait up to this `DURATION` until all is well")
	c.Flags().DurationVar(&until, "until-well", 0, "wait up to this `DURATION` until all stays well, and print changes to stderr")
	c.Flags().BoolVarP(&watch, "watch", "w", false, "print the status each second until Ctrl-C")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if watch {
			return watchStatus(c, out)
		}
		host := client(c)
		s, err := host.Status(c.Context())
		if wait > 0 {
			s, err = waitUntilWell(c.Context(), host, wait, 0, func(string) {})
		}
		if until > 0 {
			s, err = waitUntilWell(c.Context(), host, until, 2*time.Second, func(state string) {
				fmt.Fprintf(c.ErrOrStderr(), "%s  %s\n", time.Now().Format(time.TimeOnly), state)
			})
		}
		if err == nil {
			err = printStatus(c, out, s)
		}
		if err == nil && !s.Healthy {
			err = errDegraded
		}
		return err
	}
	return c
}

func printStatus(c *cobra.Command, out *format, s admin.Status) error {
	return out.print(c.OutOrStdout(), s, func(w io.Writer) { writeStatus(w, s) })
}

// clearScreen moves the cursor of a terminal to the top and erases the screen (ECMA-48).
const clearScreen = "\x1b[H\x1b[2J"

// watchStatus prints the status, or why there is none, each second until the user interrupts it.
func watchStatus(c *cobra.Command, out *format) error {
	before, after := "", "\n"
	if f, ok := c.OutOrStdout().(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		before, after = clearScreen, ""
	}
	for host := client(c); ; {
		s, err := host.Status(c.Context())
		if c.Context().Err() != nil {
			return nil
		}
		fmt.Fprint(c.OutOrStdout(), before)
		if err != nil {
			fmt.Fprintf(c.OutOrStdout(), "pointsman: %v\n", err)
		} else if err := printStatus(c, out, s); err != nil {
			return err
		}
		fmt.Fprint(c.OutOrStdout(), after)
		select {
		case <-c.Context().Done():
			return nil
		case <-time.After(time.Second):
		}
	}
}

// waitUntilWell polls the status until the node has been well for stay without a break, or limit is over
// and the node is not well. It calls report when the state changes, and returns the last status.
func waitUntilWell(ctx context.Context, client *admin.Client, limit, stay time.Duration, report func(state string)) (admin.Status, error) {
	deadline := time.Now().Add(limit)
	var well time.Time // since when the node is well; zero if it is not
	var reported string
	for {
		s, err := client.Status(ctx)
		now := time.Now()
		switch {
		case err != nil || !s.Healthy:
			well = time.Time{}
		case well.IsZero() && s.Sync.Pending == 0: // later changes may be pending
			well = now
		}
		if name, text := stateOf(s, err, well.IsZero()); name != reported {
			reported = name
			report(text)
		}
		again := err == nil || errors.Is(err, admin.ErrUnreachable)
		switch {
		case !well.IsZero():
			if now.Sub(well) >= stay {
				return s, nil
			}
		case !again || !now.Before(deadline):
			return s, err
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return s, ctx.Err()
		}
	}
}

// stateOf returns a line for the answer s or err. pending means that the dataplane has not confirmed
// earlier changes. The name stays the same while only times in the text change.
func stateOf(s admin.Status, err error, pending bool) (name, text string) {
	switch {
	case err != nil:
		return "away", oneLineOf(err)
	case !s.Healthy:
		var codes, texts []string
		for _, w := range s.Warnings {
			codes, texts = append(codes, w.Code), append(texts, w.Code+" "+w.Text)
		}
		return strings.Join(codes, " "), "not well: " + strings.Join(texts, "; ")
	case pending:
		return "pending", "well, but for changes that the dataplane has not confirmed"
	}
	return "well", "well"
}

func writeStatus(w io.Writer, s admin.Status) {
	now := time.Now()
	writeField(w, "node", "%s %v", s.Node.Name, s.Node.Addrs)
	writeField(w, "host", "%s, pid %d, up %s", s.Host.Version, s.Host.PID, phrase.Since(s.Host.Started, now))
	writeField(w, "source", "%s: %s, %s, %s", s.Source, phrase.Count(s.Services.Services, "Service"), phrase.Count(s.Services.EndpointSlices, "EndpointSlice"), phrase.Count(s.Services.Endpoints, "endpoint"))
	writeField(w, "mode", "%s", s.Mode)
	writeField(w, "", "%s", s.Auto)
	writeDataplane(w, s.Dataplane, now)
	if s.Swap != nil {
		writeField(w, "swap", "%s → %s: %s for %s", s.Swap.From, s.Swap.To, s.Swap.Stage, phrase.Since(s.Swap.Since, now))
	}
	if s.Sync.Last.IsZero() {
		writeField(w, "sync", "none yet")
	} else {
		writeField(w, "sync", "revision %d of %d, %d pending; the last %s ago, in %.1f ms", s.Sync.Acked, s.Sync.Sent, s.Sync.Pending, phrase.Since(s.Sync.Last, now), s.Sync.TookMS)
	}
	if s.Config.Path != "" {
		writeField(w, "config", "%s, loaded %s ago", s.Config.Path, phrase.Since(s.Config.Loaded, now))
	}
	if p := s.Probes; !p.Healthz || !p.Livez || !p.Readyz {
		writeField(w, "probes", "healthz %d, livez %d, readyz %d", codeOf(p.Healthz), codeOf(p.Livez), codeOf(p.Readyz))
	}
	writeUnserved(w, s.Unserved)
	for _, warning := range s.Warnings {
		writeField(w, "warning", "%s %s", paint(w, doctor.Warn, warning.Code), warning.Text)
		if warning.Try != "" {
			writeField(w, "", "     try: %s", warning.Try)
		}
	}
	if s.Healthy {
		writeField(w, "all", "%s", paint(w, doctor.OK, "is well"))
	}
}

// writeUnserved writes a line for each cause, with the first Services that it affects.
func writeUnserved(w io.Writer, problems []admin.Problem) {
	type cause struct{ reason, why string }
	var causes []cause
	services := make(map[cause][]string)
	for _, p := range problems {
		c := cause{p.Reason, p.Why}
		if services[c] == nil {
			causes = append(causes, c)
		}
		services[c] = append(services[c], p.Service)
	}
	for i, c := range causes {
		if i == shownProblems {
			writeField(w, "unserved", "… and %s: pointsman status -o yaml", phrase.Count(len(causes)-i, "further cause"))
			return
		}
		writeField(w, "unserved", "%s %s: %s", phrase.Some(services[c]), paint(w, doctor.Fail, c.reason), c.why)
	}
}

// codeOf returns the status code of a probe.
func codeOf(good bool) int {
	if good {
		return http.StatusOK
	}
	return http.StatusServiceUnavailable
}

func writeDataplane(w io.Writer, d admin.Plugin, now time.Time) {
	if d.PID == 0 {
		writeField(w, "dataplane", "%s is %s%s", d.Name, d.State, reasonText(d.Why))
	} else {
		writeField(w, "dataplane", "%s %s is %s, pid %d, up %s, %s", d.Name, d.Version, cmp.Or(d.Role, "without a role yet"), d.PID, phrase.Since(d.Up, now), phrase.Count(d.Restarts, "restart"))
	}
	if !d.Next.IsZero() {
		writeField(w, "", "next try in %s", phrase.Round(max(0, d.Next.Sub(now))))
	}
	if d.Lock == "awaited" {
		writeField(w, "", "not the writer%s", reasonText(d.Holder))
	}
	if d.Waiting != "" {
		writeField(w, "", "%s waits for %s", d.Call, d.Waiting)
	}
	writeItems(w, "note", "", d.Notes)
}
