// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/launch"
	"github.com/pointsman/pointsman/host/phrase"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest"
	"github.com/pointsman/pointsman/sdk/wire"
)

// A conformance is what `plugin conformance -o json` prints.
type conformance struct {
	admin.Meta
	Conforms bool `json:"conforms"`
	sdktest.Report
}

func conformanceVerb() *cobra.Command {
	var run, plugin, second string
	var verbose bool
	c := &cobra.Command{
		Use:   "conformance BINARY|ADDRESS",
		Short: "Hold a plugin to the contract, line by line",
		Long: `Conformance starts the plugin as a host does, sends it updates good and bad, and
real packets where it can, and says of each line of the contract whether it is kept.
A plugin that runs by itself is held to it by its address, unix:///PATH; it must not
serve anything else meanwhile. What needs two processes, as a swap does, is tried with --second,
and without it the plugin is not shown to conform.
It exits 0 when the plugin conforms, 1 when not.`,
		Args: words(1, 1, "the path of a plugin's binary, or the address at which one listens"),

		ValidArgsFunction: eachWord(completeFiles),
	}
	out := addFormat(c)
	c.Flags().StringVar(&run, "run", "", "only the checks whose name matches this regular expression; such a report never conforms")
	c.Flags().StringVar(&plugin, "options", "", "the plugin's own options, as JSON")
	c.Flags().StringVar(&second, "second", "", "with an address: that of another process of the plugin, to swap to")
	c.Flags().BoolVarP(&verbose, "verbose", "v", false, "also print what passed")
	c.RunE = func(c *cobra.Command, args []string) error {
		options := sdktest.Options{Verbose: verbose}
		if run != "" {
			pattern, err := regexp.Compile(run)
			if err != nil {
				return usageError{fmt.Errorf("--run: %w", err)}
			}
			options.Run = pattern
		}
		if *out == "table" {
			options.Out = c.OutOrStdout()
		}
		ctx, stop := untilInterrupt(c.Context())
		defer stop()
		subject, err := subjectOf(args[0])
		if err == nil {
			subject, err = withSecond(subject, second)
		}
		if err != nil {
			return err
		}
		subject.Options = []byte(plugin)
		report, err := sdktest.Check(ctx, subject, options)
		if err != nil {
			return err
		}
		answer := conformance{admin.Meta{APIVersion: admin.APIVersion, Kind: "Conformance"}, report.Conforms(), report}
		if err := out.print(c.OutOrStdout(), answer, func(w io.Writer) { fmt.Fprintln(w, report) }); err != nil {
			return err
		}
		return disproved(args[0], report)
	}
	return c
}

// disproved is the verb's error; nil: all that was asked for is kept.
func disproved(what string, r sdktest.Report) error {
	failed := r.Count(sdktest.Fail)
	switch {
	case failed > 0 && r.Partial:
		return fmt.Errorf("%s: %s of %d failed", what, phrase.Count(failed, "check"), len(r.Findings))
	case failed > 0:
		return fmt.Errorf("%s does not conform", what)
	case !r.Conforms() && !r.Partial:
		return fmt.Errorf("%s is not shown to conform: not tried, and needed: %s", what, phrase.Some(left(r)))
	}
	return nil
}

// left names the checks that were not tried although they are needed.
func left(r sdktest.Report) (names []string) {
	for _, f := range r.Findings {
		if f.Status == sdktest.NotRun && f.Needed {
			names = append(names, f.Check)
		}
	}
	return names
}

// withSecond gives a Subject that runs by itself another process of it, at an address; empty: there is none.
func withSecond(s sdktest.Subject, address string) (sdktest.Subject, error) {
	if address == "" {
		return s, nil
	}
	switch _, err := wire.At(address); {
	case !s.Single:
		return s, usageError{errors.New("--second: of a binary a second process is started as it is needed; leave it out")}
	case err != nil:
		return s, usageError{fmt.Errorf("--second: %w", err)}
	case address == s.Path:
		return s, usageError{errors.New("--second: that is the address of the first; run another process of the plugin, with --listen and an address of its own")}
	}
	s.Second = listening(address).Start
	return s, nil
}

// subjectOf returns what is held to the contract by a word of the command line.
func subjectOf(word string) (sdktest.Subject, error) {
	if !isAddress(word) {
		return launched(word), nil
	}
	if _, err := wire.At(word); err != nil {
		return sdktest.Subject{}, usageError{err}
	}
	return listening(word), nil
}

// isAddress reports whether a word is one at which a plugin listens, and not the path of a binary.
func isAddress(word string) bool {
	return strings.Contains(word, "://") || strings.HasPrefix(strings.ToLower(word), `\\.\pipe\`)
}

// launched returns a Subject whose lives are started as a host starts a plugin.
func launched(path string) sdktest.Subject {
	var lives sync.Map // from *wire.Remote to its *launch.Plugin
	return sdktest.Subject{
		Path: path, Name: sdktest.NameOf(path),
		Start: func(ctx context.Context, stateDir string) (sdk.Dataplane, error) {
			plugin, err := launch.Launch(ctx, launch.Command{Path: path, StateDir: stateDir})
			if err != nil {
				return nil, err
			}
			lives.Store(plugin.Remote, plugin)
			return plugin.Remote, nil
		},
		Stop: func(dp sdk.Dataplane) {
			if plugin, ok := lives.LoadAndDelete(dp); ok {
				_ = plugin.(*launch.Plugin).Stop(context.Background()) // it kills in the end, whatever the plugin does
			}
		},
	}
}

// listening returns a Subject that is a plugin which runs by itself, at an address. It is left
// running.
func listening(address string) sdktest.Subject {
	return sdktest.Subject{
		Path: address, Single: true,
		Start: func(ctx context.Context, _ string) (sdk.Dataplane, error) {
			target, err := wire.At(address)
			if err != nil {
				return nil, err
			}
			return wire.Attach(ctx, target)
		},
		Stop: func(dp sdk.Dataplane) { _ = dp.(*wire.Remote).Close() }, // the check has said what is wrong with it
	}
}
