// SPDX-License-Identifier: Apache-2.0

// Pointsman-conformance tests a dataplane plugin against the contract of package sdk, line by
// line.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/pointsman/pointsman/sdk/sdktest"
	"github.com/pointsman/pointsman/sdk/wire"
)

const usage = `Usage: pointsman-conformance [flags] BINARY

Tests a dataplane plugin against the contract, line by line: it starts the plugin, sends it valid and invalid
updates, and sends packets to the Services if possible. It needs no host, and affects no running one.
Exit codes: 0 if the plugin conforms, 1 if not, 64 for a wrong command line.

Flags:
`

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 64
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := pflag.NewFlagSet("pointsman-conformance", pflag.ContinueOnError)
	only := flags.String("run", "", "run only checks whose name matches this regular expression; such a report never conforms")
	options := flags.String("options", "", "the plugin's options, as JSON")
	output := flags.StringP("output", "o", "table", "table or json")
	verbose := flags.BoolP("verbose", "v", false, "also print checks that passed")
	version := flags.Bool("version", false, "print the version")
	flags.Usage = func() { fmt.Fprint(stdout, usage+flags.FlagUsages()) }

	err := flags.Parse(args)
	pattern, wrong := regexp.Compile(*only)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		return exitOK
	case err != nil:
	case *version:
		fmt.Fprintln(stdout, "pointsman-conformance", wire.Build())
		return exitOK
	case wrong != nil:
		err = fmt.Errorf("--run: %w", wrong)
	case *output != "table" && *output != "json":
		err = errors.New("--output: want table or json")
	case flags.NArg() != 1:
		err = fmt.Errorf("want the path of a plugin's binary, not %d words", flags.NArg())
	}
	if err != nil {
		fmt.Fprintf(stderr, "pointsman-conformance: %v; try: pointsman-conformance --help\n", err)
		return exitUsage
	}
	s := sdktest.Binary(flags.Arg(0))
	s.Options = []byte(*options)
	if *only != "" {
		s.Only = pattern.MatchString
	}
	var tell func(sdktest.Finding)
	if *verbose && *output == "table" {
		tell = func(f sdktest.Finding) { fmt.Fprintln(stdout, f) }
	}
	report, err := sdktest.Check(ctx, s, tell)
	if err == nil {
		err = print(stdout, *output, report)
	}
	if err != nil {
		fmt.Fprintf(stderr, "pointsman-conformance: %v\n", err)
		return exitFailed
	}
	if report.Count(sdktest.Fail) > 0 || !report.Conforms() && !report.Partial {
		return exitFailed // the report says why
	}
	return exitOK
}

// print prints a report in a format.
func print(w io.Writer, format string, r sdktest.Report) error {
	if format == "table" {
		_, err := fmt.Fprintln(w, r)
		return err
	}
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(struct {
		Conforms bool `json:"conforms"`
		sdktest.Report
	}{r.Conforms(), r})
}
