// SPDX-License-Identifier: Apache-2.0

// Pointsman-conformance holds a dataplane plugin to the contract of package sdk, line by line.
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
	"strings"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/pointsman/pointsman/sdk/sdktest"
	"github.com/pointsman/pointsman/sdk/wire"
)

const usage = `Usage: pointsman-conformance [flags] BINARY|ADDRESS

Holds a dataplane plugin to the contract, line by line: it starts the plugin, sends it updates good and
bad, and real packets where it can. It needs no host and touches none.
A plugin that runs by itself is given by its address, unix:///PATH; nothing else may use the plugin
meanwhile. What needs two processes, such as a swap, is tried with --second; without --second the
plugin is not shown to conform.
It exits 0 if the plugin conforms, 1 if not, and 64 for a wrong command line.

Flags:
`

// The exits.
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

// A command is what the command line asks for.
type command struct {
	run, options, second, output string
	verbose, version             bool
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var c command
	flags := pflag.NewFlagSet("pointsman-conformance", pflag.ContinueOnError)
	flags.StringVar(&c.run, "run", "", "only the checks whose name matches this regular expression; such a report never conforms")
	flags.StringVar(&c.options, "options", "", "the plugin's own options, as JSON")
	flags.StringVar(&c.second, "second", "", "with an address: that of another process of the plugin, to swap to")
	flags.StringVarP(&c.output, "output", "o", "table", "table or json")
	flags.BoolVarP(&c.verbose, "verbose", "v", false, "also print what passed")
	flags.BoolVar(&c.version, "version", false, "print the version")
	flags.Usage = func() { fmt.Fprint(stdout, usage+flags.FlagUsages()) }

	err := flags.Parse(args)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		return exitOK
	case c.version:
		fmt.Fprintln(stdout, "pointsman-conformance", wire.Build())
		return exitOK
	case err == nil && flags.NArg() != 1:
		err = fmt.Errorf("want the path of a plugin's binary, or the address at which one listens, not %d words", flags.NArg())
	case err == nil && c.output != "table" && c.output != "json":
		err = errors.New("--output: want table or json")
	}
	var subject sdktest.Subject
	options := sdktest.Options{Verbose: c.verbose}
	if err == nil && c.run != "" {
		options.Run, err = regexp.Compile(c.run)
	}
	if err == nil {
		subject, err = subjectOf(flags.Arg(0), c.second)
	}
	if err != nil {
		fmt.Fprintf(stderr, "pointsman-conformance: %v; try: pointsman-conformance --help\n", err)
		return exitUsage
	}
	if c.output == "table" {
		options.Out = stdout
	}
	subject.Options = []byte(c.options)
	report, err := sdktest.Check(ctx, subject, options)
	if err == nil {
		err = print(stdout, c.output, report)
	}
	if err == nil {
		err = disproved(flags.Arg(0), report)
	}
	if err != nil {
		fmt.Fprintf(stderr, "pointsman-conformance: %v\n", err)
		return exitFailed
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

// disproved returns why a plugin does not conform. Nil: it does, or no check failed of those that
// were asked for.
func disproved(what string, r sdktest.Report) error {
	failed := r.Count(sdktest.Fail)
	switch {
	case failed > 0 && r.Partial:
		return fmt.Errorf("%s: %d of %d checks failed", what, failed, len(r.Findings))
	case failed > 0:
		return fmt.Errorf("%s does not conform", what)
	case r.Conforms() || r.Partial:
		return nil
	}
	var left []string
	for _, f := range r.Findings {
		if f.Status == sdktest.NotRun && f.Needed {
			left = append(left, f.Check)
		}
	}
	return fmt.Errorf("%s is not shown to conform: not tried, and needed: %s", what, strings.Join(left, ", "))
}

// subjectOf returns what a word of the command line means: a binary, or a plugin that listens at an
// address, with the address of a second process.
func subjectOf(word, second string) (sdktest.Subject, error) {
	if !isAddress(word) {
		if second != "" {
			return sdktest.Subject{}, errors.New("--second: a second process of a binary is started as it is needed; leave it out")
		}
		return sdktest.Binary(word), nil
	}
	if word == second {
		return sdktest.Subject{}, errors.New("--second: that is the address of the first; run another process of the plugin, with --listen and an address of its own")
	}
	for _, address := range []string{word, second} {
		if address == "" {
			continue
		}
		if _, err := wire.At(address); err != nil {
			return sdktest.Subject{}, err
		}
	}
	return sdktest.Listening(word, second), nil
}

// isAddress reports whether a word is an address of a plugin, and not the path of a binary.
func isAddress(word string) bool {
	return strings.Contains(word, "://") || strings.HasPrefix(strings.ToLower(word), `\\.\pipe\`)
}
