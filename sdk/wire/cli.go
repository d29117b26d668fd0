// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// ExitUsage is the exit code for a verb or a flag that the plugin does not know.
const ExitUsage = 64

// runCLI runs the verb in args, and returns the exit code.
func runCLI(d sdk.Description, dp sdk.Dataplane, args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	c := cli{description: d, dataplane: dp, stdout: stdout, stderr: stderr}
	err := c.do(ctx, args)
	if err == nil {
		return 0
	}
	if usage, ok := errors.AsType[usageError](err); ok {
		fmt.Fprintln(stderr, usage)
		return ExitUsage
	}
	fmt.Fprintf(stderr, "%s: %v\n", c.binary(), err)
	return 1
}

// A usageError is an error in the command line.
type usageError string

func (e usageError) Error() string { return string(e) }

// A cli is a plugin that is run from a command line.
type cli struct {
	description    sdk.Description
	dataplane      sdk.Dataplane
	stdout, stderr io.Writer
}

func (c cli) binary() string { return "pointsman-dataplane-" + c.description.Name }

func (c cli) do(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return usageError(c.help())
	}
	verb, rest := args[0], args[1:]
	switch verb {
	case "--help", "-h", "help":
		fmt.Fprint(c.stdout, c.help())
		return nil
	case "--version", "version":
		fmt.Fprintf(c.stdout, "%s %s (built from %s, wire major %d)\n", c.binary(), c.description.Version, Build(), Major)
		return nil
	case "describe":
		return c.describe(rest)
	case "check":
		return c.check(ctx, rest)
	case "cleanup":
		return c.cleanup(ctx, rest)
	case "--listen":
		return c.listen(rest)
	case "alive":
		return c.alive(ctx, rest)
	}
	return usageError(fmt.Sprintf("%s: no such verb %q; try: %s --help", c.binary(), verb, c.binary()))
}

func (c cli) help() string {
	return fmt.Sprintf(`%[1]s is a dataplane plugin of Pointsman. A host starts it if its file is in one of the
host's pluginDirs and the host's mode is %[2]s. On the command line:

  %[1]s --version      print its version, its commit, and the major of the protocol
  %[1]s describe       print its features, limits and options
  %[1]s check          check whether this node can run it; changes nothing (--options JSON)
  %[1]s cleanup        remove everything that it wrote to this node
      --dry-run        only print what would be removed
      --kube-proxy     also remove what kube-proxy left in the mode that it replaces
  %[1]s --listen %[3]s
                       listen there for a host of this user or of root, instead of
                       being started by a host
      --allow-uid N    also accept hosts of user N (a number or name; may be repeated),
                       who must be in this process's group
  %[1]s alive %[3]s
                       check that the plugin that listens there answers

describe and check print JSON, as cleanup does with -o json. Exit codes: 0 for success, 1 for a failure, 64 for a wrong command line.
`, c.binary(), c.description.Name, addressForm)
}

// flags parses -o and the flags that define adds, accepts no other words, and reports whether JSON is requested.
func (c cli) flags(verb string, args []string, define func(*flag.FlagSet)) (asJSON bool, err error) {
	set := flag.NewFlagSet(verb, flag.ContinueOnError)
	set.SetOutput(io.Discard)
	output := set.String("o", "text", "")
	define(set)
	if err = set.Parse(args); err == nil && set.NArg() > 0 {
		err = fmt.Errorf("unexpected %q", set.Arg(0))
	} else if err == nil && *output != "text" && *output != "json" {
		err = fmt.Errorf("-o %q is neither text nor json", *output)
	}
	if err != nil {
		err = usageError(fmt.Sprintf("%s %s: %v; try: %s --help", c.binary(), verb, err, c.binary()))
	}
	return *output == "json", err
}

func (c cli) describe(args []string) error {
	if _, err := c.flags("describe", args, func(*flag.FlagSet) {}); err != nil {
		return err
	}
	d := c.description
	return c.printJSON(described{d.Name, d.Version, Major, d.Features, d.Limits, json.RawMessage(d.Options)})
}

// A described is the JSON form of a Description.
type described struct {
	Name     string          `json:"name"`
	Version  string          `json:"version"`
	Major    uint32          `json:"major"`
	Features []sdk.Feature   `json:"features"`
	Limits   []sdk.Limit     `json:"limits"`
	Options  json.RawMessage `json:"options,omitempty"`
}

func (c cli) printJSON(v any) error {
	out := json.NewEncoder(c.stdout)
	out.SetIndent("", "  ")
	return out.Encode(v)
}

// A checked is the JSON form of the result of check.
type checked struct {
	Runs    bool     `json:"runs"`
	Why     string   `json:"why,omitempty"`   // why it cannot run
	Field   string   `json:"field,omitempty"` // Refusal.Field
	Version string   `json:"version"`
	Lacks   []string `json:"lacks"` // what does not work on this node
	Notes   []string `json:"notes"` // observations that affect no Service

	SwapImpact string `json:"swapImpact,omitempty"` // what a swap to it would interrupt
}

// check runs Configure, which only reads the node.
func (c cli) check(ctx context.Context, args []string) error {
	var options string
	_, err := c.flags("check", args, func(f *flag.FlagSet) { f.StringVar(&options, "options", "{}", "JSON") })
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, configureTimeout)
	defer cancel()
	d, err := c.dataplane.Configure(ctx, sdk.Setup{
		Options:  []byte(options),
		StateDir: os.DevNull, // nothing can be created below it, and Configure must not create anything
		Log:      slog.New(slog.NewTextHandler(c.stderr, nil)),
	})
	answer := checked{Runs: err == nil, Version: c.description.Version, Lacks: []string{}, Notes: []string{}}
	if err != nil {
		answer.Why = err.Error()
		if refusal, ok := errors.AsType[*sdk.Refusal](err); ok {
			answer.Field = refusal.Field
		}
		err = fmt.Errorf("this node cannot run it: %w", err)
	} else {
		answer.Version, answer.Lacks = d.Version, append(answer.Lacks, narrowed(c.description, d)...)
		if r, ok := c.dataplane.(sdk.Reporter); ok {
			report := r.Report()
			answer.Notes = append(answer.Notes, texts[string](report.Notes)...)
			answer.SwapImpact = Printable(report.SwapImpact)
		}
	}
	return errors.Join(c.printJSON(answer), err)
}

// preflight runs the verb check in a new process of this binary, because the dataplane in this
// process may serve a session, which a call of Configure would end. The exit code needs no
// attention: the output contains the result.
func preflight(ctx context.Context, options []byte) ([]byte, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	args := []string{"check", "-o", "json"}
	if len(options) > 0 {
		args = append(args, "--options", string(options))
	}
	child := exec.CommandContext(ctx, self, args...)
	child.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, cookieKey+"=") })
	child.WaitDelay = time.Second // a tool that the child started may hold its stdout
	answer, err := child.Output()
	if errors.As(err, new(*exec.ExitError)) {
		err = nil
	}
	return answer, errors.Join(ctx.Err(), err)
}

// narrowed describes the features that a dataplane lacks on this node, and its additional limits.
func narrowed(all, here sdk.Description) []string {
	var lines []string
	for _, f := range all.Features {
		if !slices.Contains(here.Features, f) {
			lines = append(lines, "it does not serve "+string(f))
		}
	}
	for _, l := range here.Limits {
		if !slices.Contains(all.Limits, l) {
			lines = append(lines, "it has the limit "+string(l))
		}
	}
	return lines
}

// A cleaned is the JSON form of the result of cleanup.
type cleaned struct {
	DryRun  bool     `json:"dryRun"` // nothing was removed, only listed
	Removed []string `json:"removed"`
	Error   string   `json:"error,omitempty"`
}

func (c cli) cleanup(ctx context.Context, args []string) error {
	var l sdk.Leftovers
	asJSON, err := c.flags("cleanup", args, func(f *flag.FlagSet) {
		f.BoolVar(&l.KubeProxy, "kube-proxy", false, "")
		f.BoolVar(&l.DryRun, "dry-run", false, "")
	})
	if err != nil {
		return err
	}
	removed, err := c.dataplane.Cleanup(ctx, l)
	if busy, is := errors.AsType[*sdk.Busy](err); is {
		unit := "pointsman"
		if busy.Host == 0 {
			unit += "-dataplane@" + c.description.Name
		}
		err = fmt.Errorf("%w; try: end it first, as by systemctl stop %s", err, unit)
	}
	if asJSON {
		answer := cleaned{DryRun: l.DryRun, Removed: append([]string{}, removed...)}
		if err != nil {
			answer.Error = err.Error()
		}
		return errors.Join(c.printJSON(answer), err)
	}
	verb := "removed"
	if l.DryRun {
		verb = "would remove"
	}
	for _, what := range removed {
		fmt.Fprintf(c.stdout, "%s %s\n", verb, what)
	}
	if err == nil && len(removed) == 0 {
		fmt.Fprintln(c.stdout, "nothing to remove")
	}
	return err
}
