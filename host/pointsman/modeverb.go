// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/phrase"
)

func modeVerb() *cobra.Command {
	return group("mode", "Show the mode, swap it under traffic, or reset it",
		modeShowVerb(), modeSwapVerb(), modeResetVerb())
}

func modeShowVerb() *cobra.Command {
	return printing(verb("show", "Show the serving mode, and the progress of a swap", cobra.NoArgs),
		func(c *cobra.Command, _ []string) (admin.Mode, error) { return client(c).Mode(c.Context()) }, writeMode)
}

func writeMode(w io.Writer, m admin.Mode) {
	writeField(w, "mode", m.Mode)
	if m.Wanted != m.Mode {
		writeField(w, "wanted", m.Wanted)
	}
	switch {
	case m.Asked != "":
		writeField(w, "asked for", m.Asked+", by pointsman mode swap; the config file says "+m.File)
	case m.Auto != "":
		writeField(w, "config file", m.Auto)
	case m.File != m.Mode:
		writeField(w, "config file", m.File)
	}
	if s := m.Swap; s != nil {
		writeField(w, "swap", fmt.Sprintf("%s → %s: %s for %s (%s)", s.From, s.To, s.Stage, ago(s.Since), s.Why))
		writeField(w, "undone", s.Undo)
		if !s.Until.IsZero() {
			writeField(w, "draining", fmt.Sprintf("%s of %s; cut %s at the latest", phrase.Count(s.Flows, "connection"), s.Leaves(), until(s.Until)))
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
		if l.Seconds > 0 {
			how = fmt.Sprintf("in %.1f s, %s", l.Seconds, how)
		}
		writeField(w, "last swap", fmt.Sprintf("%s → %s, %s ago, %s", l.From, l.To, ago(l.At), how))
		writeField(w, "next try", until(l.Again))
		writeField(w, "not finished", l.Left)
	}
	if len(m.Left) > 0 {
		writeField(w, "left", phrase.List(m.Left)+" may have rules in the kernel, which are cleaned up once the wanted mode serves")
	}
}

func modeSwapVerb() *cobra.Command {
	var limit time.Duration
	var force, dryRun bool
	c := completing(verb("swap MODE", "Change the mode while connections continue", cobra.ExactArgs(1)), pluginNames)
	c.Flags().DurationVar(&limit, "wait", 0, "wait up to this `DURATION` for the new mode to serve")
	c.Flags().Lookup("wait").NoOptDefVal = "3m"
	c.Flags().BoolVar(&force, "force", false, "swap even if Services or connections are lost")
	c.Flags().BoolVar(&dryRun, "dry-run", false, "only find out whether the swap can be made")
	c.RunE = func(c *cobra.Command, args []string) error {
		began := time.Now()
		done, err := client(c).SwapMode(c.Context(), admin.SwapAsk{To: args[0], Force: force, DryRun: dryRun})
		if dryRun && limit == 0 {
			limit = 3 * time.Minute
		}
		if err != nil || limit == 0 {
			return printDone(c, done, err)
		}
		return awaitSwap(c.Context(), client(c), args[0], dryRun, began, limit, c.OutOrStdout())
	}
	return c
}

// errSuperseded ends the wait for a swap.
var errSuperseded = errors.New(admin.Superseded)

// awaitSwap waits until the swap to a mode has succeeded or failed, and returns the failure.
func awaitSwap(ctx context.Context, client *admin.Client, to string, dryRun bool, began time.Time, limit time.Duration, w io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		m, err := client.Mode(ctx)
		if err != nil {
			return false, err
		}
		if !dryRun && m.Wanted != to {
			return false, fmt.Errorf("%w meanwhile: %s", errSuperseded, m.Wanted)
		}
		s, last := m.Swap, m.Last
		ended := last != nil && last.To == to && last.At.After(began) && (s == nil || last.Error != "")
		if ended && last.Error == admin.Superseded { // and then this mode again
			return false, errSuperseded
		}
		if s != nil && s.To == to && (s.Began.After(began) || s.Moved()) { // or it was in progress already
			if serves, err := inProgress(*s, w); serves || err != nil {
				return serves, err
			}
		}
		if !ended {
			return false, nil
		}
		return true, result(*last, w)
	})
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("the swap is still in progress after %s; try: pointsman mode show", limit)
	}
	return err
}

// inProgress prints that the mode serves, if it does already.
func inProgress(s admin.Swap, w io.Writer) (serves bool, err error) {
	switch {
	case s.Moved() && s.From == s.To:
		fmt.Fprintf(w, "%s serves; its previous process drains\n", s.To)
	case s.Moved():
		fmt.Fprintf(w, "%s serves; %s drains\n", s.To, s.From)
	case s.Undo != "" && s.Stage == "draining" && s.Flows > 0:
		return false, fmt.Errorf("the swap to %s was undone, and %s continues to serve: %s; %s still drains", s.To, s.From, s.Undo, s.To)
	}
	return s.Moved(), nil
}

// result prints the result of a swap, or returns why it failed.
func result(l admin.Swapped, w io.Writer) error {
	switch {
	case l.DryRun && l.Error != "":
		return fmt.Errorf("a swap to %s would fail: %s", l.To, l.Error)
	case l.Error != "":
		return fmt.Errorf("the swap to %s was undone, and %s continues to serve: %s%s", l.To, l.From, l.Error, l.Retried(time.Now()))
	case l.DryRun:
		fmt.Fprintf(w, "%s can serve all that %s serves now\n", l.To, l.From)
	case l.Left != "":
		return fmt.Errorf("the swap to %s is not finished: %s", l.To, l.Left)
	default:
		fmt.Fprintf(w, "%s serves\n", l.To)
	}
	return nil
}

func modeResetVerb() *cobra.Command {
	c := verb("reset", "Roll back a swap in progress, or return to the mode of the config file", cobra.NoArgs)
	c.RunE = func(c *cobra.Command, _ []string) error {
		done, err := client(c).ResetMode(c.Context())
		return printDone(c, done, err)
	}
	return c
}
