// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/phrase"
)

func modeVerb() *cobra.Command {
	return group("mode", "Show, make and undo a change of mode, under which connections go on",
		modeShowVerb(), modeSwapVerb(), modeResetVerb())
}

func modeShowVerb() *cobra.Command {
	return asking(&cobra.Command{
		Use:   "show",
		Short: "Say which dataplane serves, and how far a swap is",
		Args:  noWords(),
	}, func(c *cobra.Command, _ []string) (admin.Mode, error) { return client(c).Mode(c.Context()) }, writeMode)
}

func writeMode(w io.Writer, m admin.Mode) {
	now := time.Now()
	line := func(label, format string, args ...any) {
		fmt.Fprintf(w, "%s\t%s\n", label, fmt.Sprintf(format, args...))
	}
	line("mode", "%s", m.Mode)
	if m.Wanted != m.Mode {
		line("wanted", "%s", m.Wanted)
	}
	switch {
	case m.Asked != "":
		line("asked for", "%s, by pointsman mode swap; the config file says %s", m.Asked, m.File)
	case m.Auto != "":
		line("config file", "%s", m.Auto)
	case m.File != m.Mode:
		line("config file", "%s", m.File)
	}
	if s := m.Swap; s != nil {
		line("swap", "%s → %s: %s for %s (%s)", s.From, s.To, s.Stage, phrase.Since(s.Since, now), s.Why)
		if s.Undo != "" {
			line("undone", "%s", s.Undo)
		}
		if !s.Until.IsZero() {
			line("draining", "%s of %s; cut in %s at the latest", phrase.Count(s.Flows, "connection"), s.From, phrase.Round(max(0, s.Until.Sub(now))))
		}
	}
	if l := m.Last; l != nil {
		how := "made"
		switch {
		case l.DryRun && l.Error == "":
			how = "a dry run: it can be made"
		case l.DryRun:
			how = "a dry run: it would fail: " + l.Error
		case l.Error != "":
			how = "undone: " + l.Error
		}
		line("last swap", "%s → %s, %s ago%s, %s", l.From, l.To, phrase.Since(l.At, now), took(l.Seconds), how)
		if !l.Again.IsZero() {
			line("next try", "in %s", phrase.Round(max(0, l.Again.Sub(now))))
		}
		if l.Left != "" {
			line("not finished", "%s", l.Left)
		}
	}
	if len(m.Left) > 0 {
		line("left", "%s may have rules in the kernel, which are cleaned up once the wanted mode serves", phrase.List(m.Left))
	}
}

func modeSwapVerb() *cobra.Command {
	var wait time.Duration
	var force, dryRun bool
	c := &cobra.Command{
		Use:   "swap MODE",
		Short: "Change the mode while connections go on",
		Long: `Swap brings up the dataplane of another mode beside the one that serves, tells it
everything, and switches traffic: new connections go to the new one, and those that
are established stay where they are until they end. When anything goes wrong, the
old one serves on.

With --wait it returns when the new one serves and has proved that it does, or when
the swap was undone; then it exits 1 and says why. If another mode was asked for
meanwhile, it exits 3. To swap to the mode that serves starts its binary anew.

A swap can be asked for at any time. While another one is under way it begins after
that, which is undone if traffic was not switched yet.

With --dry-run it starts the new dataplane in Standby, sends it everything, compares what
that would serve with what it was sent, and removes it again. This writes to the kernel;
no packet is handled by what it writes. It exits 0 if the swap can be made, and else 1
and says why.`,
		Args: words(1, 1, "the name of a mode"),

		ValidArgsFunction: eachWord(completePlugins),
	}
	c.Flags().DurationVar(&wait, "wait", 0, "wait this long for the new mode to serve")
	c.Flags().Lookup("wait").NoOptDefVal = "3m"
	c.Flags().BoolVar(&force, "force", false, "also if Services or connections are lost by it")
	c.Flags().BoolVar(&dryRun, "dry-run", false, "only find out whether the swap can be made")
	c.RunE = func(c *cobra.Command, args []string) error {
		ctx, stop := untilInterrupt(c.Context())
		defer stop()
		began := time.Now()
		done, err := client(c).SwapMode(ctx, admin.SwapAsk{To: args[0], Force: force, DryRun: dryRun})
		if err != nil {
			return err
		}
		if dryRun && wait == 0 {
			wait = 3 * time.Minute
		}
		if wait > 0 {
			return awaitSwap(ctx, client(c), args[0], dryRun, began, wait, c.OutOrStdout())
		}
		fmt.Fprintln(c.OutOrStdout(), done.Message)
		return nil
	}
	return c
}

// errSuperseded is why a swap is not waited for any more, in the host's words.
var errSuperseded = errors.New("another mode was asked for")

// awaitSwap waits until the swap to a mode that was asked for has come to something.
func awaitSwap(ctx context.Context, client *admin.Client, to string, dryRun bool, began time.Time, wait time.Duration, w io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for {
		m, err := client.Mode(ctx)
		if err != nil {
			return err
		}
		s, last := m.Swap, m.Last
		ours := s != nil && s.To == to && (s.Began.After(began) || s.Moved()) // or it was under way already
		ended := last != nil && last.To == to && last.At.After(began) && (s == nil || last.Error != "")
		switch {
		case !dryRun && m.Wanted != to:
			return fmt.Errorf("%w meanwhile: %s", errSuperseded, m.Wanted)
		case ended && last.Error == errSuperseded.Error(): // and then this one again
			return errSuperseded
		case ours && s.Moved():
			leaves := s.From
			if leaves == s.To {
				leaves = "its process before"
			}
			fmt.Fprintf(w, "%s serves; %s drains\n", s.To, leaves)
			return nil
		case ours && s.Undo != "" && s.Stage == "draining" && s.Flows > 0:
			return fmt.Errorf("the swap to %s was undone, and %s serves on: %s; %s goes on draining", s.From, s.To, s.Undo, s.From)
		case ended && last.DryRun && last.Error == "":
			fmt.Fprintf(w, "%s can serve all that %s serves now\n", last.To, last.From)
			return nil
		case ended && last.DryRun:
			return fmt.Errorf("a swap to %s would fail: %s", last.To, last.Error)
		case ended && last.Error != "":
			return fmt.Errorf("the swap to %s was undone, and %s serves on: %s%s", last.To, last.From, last.Error, last.Retried(time.Now()))
		case ended && last.Left != "":
			return fmt.Errorf("the swap to %s is not finished: %s", last.To, last.Left)
		case ended:
			fmt.Fprintf(w, "%s serves\n", last.To)
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the swap goes on after %s; try: pointsman mode show", wait)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func modeResetVerb() *cobra.Command {
	return &cobra.Command{
		Use:   "reset",
		Short: "Undo a swap that is under way, or go back to the mode of the config file",
		Args:  noWords(),
		RunE:  acting(func(c *cobra.Command, _ []string) (admin.Done, error) { return client(c).ResetMode(c.Context()) }),
	}
}

// took says how long a swap took, as far as is known.
func took(seconds float64) string {
	if seconds <= 0 {
		return ""
	}
	return fmt.Sprintf(", in %.1f s", seconds)
}
