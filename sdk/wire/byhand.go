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
	"os/signal"
	"os/user"
	"strconv"
	"strings"
	"syscall"

	"github.com/pointsman/pointsman/sdk"
)

// The exits of a plugin that is run by hand.
const (
	exitOK     = 0
	exitFailed = 1

	// ExitUsage is that of a verb or a flag that the plugin does not know.
	ExitUsage = 64
)

// byHand does what the arguments say, and returns the exit.
func byHand(d sdk.Description, dp sdk.Dataplane, args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	h := hand{description: d, dataplane: dp, stdout: stdout, stderr: stderr}
	err := h.do(ctx, args)
	var usage usageError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &usage):
		fmt.Fprintln(stderr, usage)
		return ExitUsage
	}
	fmt.Fprintf(stderr, "%s: %v\n", h.binary(), err)
	return exitFailed
}

// A usageError is a wrong word on the command line.
type usageError string

func (e usageError) Error() string { return string(e) }

// A hand is a plugin run by hand.
type hand struct {
	description    sdk.Description
	dataplane      sdk.Dataplane
	stdout, stderr io.Writer
}

func (h hand) binary() string { return "pointsman-dataplane-" + h.description.Name }

func (h hand) do(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return usageError(h.nothing())
	}
	verb, rest := args[0], args[1:]
	if address, ok := strings.CutPrefix(verb, "--listen="); ok {
		verb, rest = "--listen", append([]string{address}, rest...)
	}
	switch verb {
	case "--help", "-h", "help":
		fmt.Fprint(h.stdout, h.help())
		return nil
	case "--version", "version":
		fmt.Fprintf(h.stdout, "%s %s (built from %s, wire major %d)\n", h.binary(), h.description.Version, Build(), Major)
		return nil
	case "describe":
		return h.describe(rest)
	case "check":
		return h.check(ctx, rest)
	case "cleanup":
		return h.cleanup(ctx, rest)
	case "--listen":
		return h.listen(rest)
	case "alive":
		return h.alive(ctx, rest)
	}
	return usageError(fmt.Sprintf("%s: no such verb %q; try: %s --help", h.binary(), verb, h.binary()))
}

func (h hand) nothing() string {
	return fmt.Sprintf(`%[1]s is a dataplane of Pointsman: a host starts it and tells it what to serve.
Put it where the host looks for plugins (pluginDirs in its config) and choose it with "mode: %[2]s",
or see what it can do by hand: %[1]s --help`, h.binary(), h.description.Name)
}

func (h hand) help() string {
	return fmt.Sprintf(`%[1]s is a dataplane of Pointsman. A host starts it; by hand it does this:

  %[1]s --version      its version, what it is built from, and the wire it speaks
  %[1]s describe       what it serves, its limits and options
  %[1]s check          whether this node can run it; changes nothing (--options JSON)
  %[1]s cleanup        removes every trace of it from this node
      --dry-run        only names what would go
      --kube-proxy     also what kube-proxy left in the mode it replaces
  %[1]s --listen unix:///run/pointsman/%[2]s/plugin.sock
                       serves hosts that attach there, instead of one that starts it:
                       those of this user and of root
      --allow-uid N    also those of user N (its number or name; may come several
                       times), who must be in this process's group
  %[1]s alive unix:///run/pointsman/%[2]s/plugin.sock
                       asks the one that listens there whether it still answers

For programs, describe, check and cleanup answer with -o json. It exits 0 when all went well, 1 when not, 64 on a wrong word.
`, h.binary(), h.description.Name)
}

// flags reads the verb's own flags, and no other word.
func (h hand) flags(verb string, args []string, define func(*flag.FlagSet)) error {
	set := flag.NewFlagSet(verb, flag.ContinueOnError)
	set.SetOutput(io.Discard)
	define(set)
	err := set.Parse(args)
	if err == nil && set.NArg() > 0 {
		err = fmt.Errorf("unexpected %q", set.Arg(0))
	}
	if err != nil {
		return usageError(fmt.Sprintf("%s %s: %v; try: %s --help", h.binary(), verb, err, h.binary()))
	}
	return nil
}

// outputFlags reads the verb's own flags and -o, and reports whether JSON is asked for.
func (h hand) outputFlags(verb string, args []string, define func(*flag.FlagSet)) (asJSON bool, err error) {
	var output string
	err = h.flags(verb, args, func(f *flag.FlagSet) {
		f.StringVar(&output, "o", "text", "text or json")
		define(f)
	})
	if err == nil && output != "text" && output != "json" {
		err = usageError(fmt.Sprintf("%s %s: -o %q is neither text nor json", h.binary(), verb, output))
	}
	return output == "json", err
}

func (h hand) describe(args []string) error {
	asJSON, err := h.outputFlags("describe", args, func(*flag.FlagSet) {})
	if err != nil {
		return err
	}
	if !asJSON {
		h.print(h.description)
		return nil
	}
	d := h.description
	return h.printJSON(described{d.Name, d.Version, Major, d.Features, d.Limits, json.RawMessage(d.Options)})
}

func (h hand) print(d sdk.Description) {
	fmt.Fprintf(h.stdout, "name:     %s\nversion:  %s\nserves:   %s\nlimits:   %s\n",
		d.Name, d.Version, words(d.Features, "a ClusterIP over TCP only"), words(d.Limits, "none"))
	if len(d.Options) == 0 {
		fmt.Fprintln(h.stdout, "options:  none")
		return
	}
	fmt.Fprintf(h.stdout, "options:  %s\n", d.Options)
}

func words[S ~string](list []S, none string) string {
	if len(list) == 0 {
		return none
	}
	var b strings.Builder
	for i, s := range list {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(string(s))
	}
	return b.String()
}

// A described is a Description as programs read it.
type described struct {
	Name     string          `json:"name"`
	Version  string          `json:"version"`
	Major    uint32          `json:"major"`
	Features []sdk.Feature   `json:"features"`
	Limits   []sdk.Limit     `json:"limits"`
	Options  json.RawMessage `json:"options,omitempty"`
}

func (h hand) printJSON(v any) error {
	out := json.NewEncoder(h.stdout)
	out.SetIndent("", "  ")
	return out.Encode(v)
}

// A checked is the answer of check as programs read it.
type checked struct {
	Runs    bool     `json:"runs"`
	Why     string   `json:"why,omitempty"` // it does not
	Version string   `json:"version"`
	Lacks   []string `json:"lacks"` // what does not work on this node
}

// check is Configure, which only reads the node.
func (h hand) check(ctx context.Context, args []string) error {
	var options string
	asJSON, err := h.outputFlags("check", args, func(f *flag.FlagSet) { f.StringVar(&options, "options", "{}", "JSON") })
	if err != nil {
		return err
	}
	d, err := h.configure(ctx, options)
	answer := checked{Runs: err == nil, Version: h.description.Version, Lacks: []string{}}
	if err != nil {
		answer.Why = err.Error()
		err = fmt.Errorf("this node cannot run it: %w", err)
	} else {
		answer.Version, answer.Lacks = d.Version, append(answer.Lacks, narrowed(h.description, d)...)
	}
	if asJSON {
		return errors.Join(h.printJSON(answer), err)
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(h.stdout, "this node can run %s %s\n", d.Name, d.Version)
	for _, missing := range answer.Lacks {
		fmt.Fprintln(h.stdout, "  but here", missing)
	}
	return nil
}

func (h hand) configure(ctx context.Context, options string) (sdk.Description, error) {
	dir, err := os.MkdirTemp("", "pointsman-check")
	if err != nil {
		return sdk.Description{}, err
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithTimeout(ctx, configureTimeout)
	defer cancel()
	return h.dataplane.Configure(ctx, sdk.Setup{
		Options:  []byte(options),
		StateDir: dir,
		Log:      slog.New(slog.NewTextHandler(h.stderr, nil)),
	})
}

// narrowed says what of a dataplane does not work on this node.
func narrowed(all, here sdk.Description) []string {
	var lines []string
	has := make(map[string]bool)
	for _, f := range here.Features {
		has["feature "+string(f)] = true
	}
	for _, l := range all.Limits {
		has["limit "+string(l)] = true
	}
	for _, f := range all.Features {
		if !has["feature "+string(f)] {
			lines = append(lines, "it does not serve "+string(f))
		}
	}
	for _, l := range here.Limits {
		if !has["limit "+string(l)] {
			lines = append(lines, "it has the limit "+string(l))
		}
	}
	return lines
}

// A cleaned is the answer of cleanup as programs read it.
type cleaned struct {
	DryRun  bool     `json:"dryRun"` // nothing was removed, only named
	Removed []string `json:"removed"`
	Error   string   `json:"error,omitempty"`
}

func (h hand) cleanup(ctx context.Context, args []string) error {
	var l sdk.Leftovers
	asJSON, err := h.outputFlags("cleanup", args, func(f *flag.FlagSet) {
		f.BoolVar(&l.KubeProxy, "kube-proxy", false, "")
		f.BoolVar(&l.DryRun, "dry-run", false, "")
	})
	if err != nil {
		return err
	}
	removed, err := h.dataplane.Cleanup(ctx, l)
	if asJSON {
		answer := cleaned{DryRun: l.DryRun, Removed: append([]string{}, removed...)}
		if err != nil {
			answer.Error = err.Error()
		}
		return errors.Join(h.printJSON(answer), err)
	}
	verb := "removed"
	if l.DryRun {
		verb = "would remove"
	}
	for _, what := range removed {
		fmt.Fprintf(h.stdout, "%s %s\n", verb, what)
	}
	if err == nil && len(removed) == 0 {
		fmt.Fprintln(h.stdout, "nothing to remove")
	}
	return err
}

func (h hand) listen(args []string) error {
	address := ""
	if len(args) > 0 {
		address, args = args[0], args[1:]
	}
	if _, err := socketPath(address); err != nil {
		return usageError(fmt.Sprintf("%s --listen: %v", h.binary(), err))
	}
	d := door{address: address}
	err := h.flags("--listen", args, func(f *flag.FlagSet) { f.Var((*users)(&d.users), "allow-uid", "") })
	if err != nil {
		return err
	}
	return listenAndServe(newServer(h.description, h.dataplane), d, h.stderr)
}

// users is a flag that may come several times: the number of a user each, or the
// name.
type users []uint32

func (u *users) String() string { return fmt.Sprint(*u) }

func (u *users) Set(s string) error {
	if named, err := user.Lookup(s); err == nil {
		s = named.Uid
	}
	uid, err := strconv.ParseUint(s, 10, 32)
	if err != nil {
		return fmt.Errorf("there is no user %q here", s)
	}
	*u = append(*u, uint32(uid))
	return nil
}
