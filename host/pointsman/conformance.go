// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"sync"

	"github.com/spf13/cobra"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/launch"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest"
)

// A conformance is what `plugin conformance -o json` prints.
type conformance struct {
	admin.Meta
	Conforms bool `json:"conforms"`
	sdktest.Report
}

func conformanceVerb() *cobra.Command {
	var run, plugin string
	var verbose bool
	c := &cobra.Command{
		Use:   "conformance BINARY",
		Short: "Hold a plugin to the contract, line by line",
		Long: `Conformance starts the plugin as a host does, sends it updates good and bad, and
real packets where it can, and says of each line of the contract whether it is kept.
It exits 0 when the plugin conforms, 1 when not.`,
		Args: words(1, 1, "the path of a plugin's binary"),
	}
	out := addFormat(c)
	c.Flags().StringVar(&run, "run", "", "only the checks whose name matches this regular expression")
	c.Flags().StringVar(&plugin, "options", "", "the plugin's own options, as JSON")
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
		subject := launched(args[0])
		subject.Options = []byte(plugin)
		report, err := sdktest.Check(ctx, subject, options)
		if err != nil {
			return err
		}
		answer := conformance{admin.Meta{APIVersion: admin.APIVersion, Kind: "Conformance"}, report.Conforms(), report}
		if err := out.print(c.OutOrStdout(), answer, func(w io.Writer) { fmt.Fprintln(w, report) }); err != nil {
			return err
		}
		if report.Count(sdktest.Fail) > 0 || (!report.Conforms() && run == "") {
			return fmt.Errorf("%s does not conform", args[0])
		}
		return nil
	}
	return c
}

// launched returns a Subject whose lives are started as a host starts a plugin.
func launched(path string) sdktest.Subject {
	var lives sync.Map // from *wire.Remote to its *launch.Plugin
	return sdktest.Subject{
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
