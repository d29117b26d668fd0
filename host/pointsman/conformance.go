// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"regexp"

	"github.com/spf13/cobra"

	"github.com/pointsman/pointsman/host/admin"
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
		options := sdktest.Options{Verbose: verbose, Plugin: []byte(plugin)}
		if run != "" {
			pattern, err := regexp.Compile(run)
			if err != nil {
				return usageError{fmt.Errorf("--run: %w", err)}
			}
			options.Run = pattern
		}
		progress := c.OutOrStdout()
		if *out != "table" {
			progress = io.Discard
		}
		ctx, stop := untilInterrupt(c.Context())
		defer stop()
		report, err := sdktest.ConformBinary(ctx, args[0], progress, options)
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
