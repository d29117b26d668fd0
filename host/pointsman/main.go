// SPDX-License-Identifier: Apache-2.0

/*
Command pointsman is the host: it watches Services, decides which frontends and endpoints this node
serves, and sends them to a dataplane plugin. Its other verbs query a running host, or read this
machine's files and plugins.

This package only constructs and connects the packages beside it. Start reading at newHost (host.go):

	watch ─▶ track ─▶ feed ─▶ a plugin that launch watches
	                   └───▶ report ─▶ log, status        admin ◀─ other verbs
*/
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/config"
)

func main() { os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr)) }

// Exit statuses; docs/cli.md lists them.
const (
	exitOK          = 0
	exitFailed      = 1
	exitDegraded    = 2
	exitUnreachable = 3
	exitSuperseded  = 3 // of mode swap --wait
	exitUsage       = 64
)

// Errors of verbs that have already printed the reason.
var (
	errDegraded = errors.New("degraded")
	errRefused  = errors.New("refused")
)

// A usageError is a mistake on the command line.
type usageError struct{ error }

// execute runs the verb that args name, and returns the exit status.
func execute(args []string, stdout, stderr io.Writer) int {
	root := rootVerb()
	started := false
	root.PersistentPreRun = func(*cobra.Command, []string) { started = true }
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	c, err := root.ExecuteContextC(ctx)
	exit, usage, problems := exitFailed, usageError{}, config.Problems{}
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errDegraded):
		return exitDegraded
	case errors.Is(err, errRefused):
		return exitFailed
	case errors.As(err, &problems):
		fmt.Fprintln(stderr, err) // each line begins with the name of the file
		return exitFailed
	case !started: // cobra refuses the flags or arguments
		err, exit = fmt.Errorf("%w; try: %s --help", err, c.CommandPath()), exitUsage
	case errors.As(err, &usage):
		exit = exitUsage
	case errors.Is(err, admin.ErrUnreachable):
		exit = exitUnreachable
	case errors.Is(err, errSuperseded):
		exit = exitSuperseded
	}
	fmt.Fprintf(stderr, "pointsman: %v\n", err)
	return exit
}

func rootVerb() *cobra.Command {
	root := group("pointsman", "A service proxy for Kubernetes nodes, with dataplanes as plugins",
		runVerb(), statusVerb(), serviceVerb(), explainVerb(), diffVerb(), bundleVerb(), doctorVerb(), eventsVerb(), planVerb(), modeVerb(), configVerb(), pluginVerb(), cleanupVerb(), versionVerb())
	root.SilenceErrors = true
	root.SilenceUsage = true
	flags := root.PersistentFlags()
	flags.String("config", "", "the config file (default "+config.UsualFile+" if it exists)")
	config.AddVerbFlags(flags)
	setHelp(root)
	return root
}

// verb returns a verb without an action.
func verb(use, short string, args cobra.PositionalArgs) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, Args: args}
}

// group returns a verb that only has verbs below it. Without arguments it prints its help.
func group(use, short string, verbs ...*cobra.Command) *cobra.Command {
	c := verb(use, short, func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		hint := ""
		if like := c.SuggestionsFor(args[0]); len(like) > 0 {
			hint = fmt.Sprintf(" (did you mean %s?)", strings.Join(like, " or "))
		}
		return fmt.Errorf("unknown command %q for %q%s", args[0], c.CommandPath(), hint)
	})
	c.AddCommand(verbs...)
	c.SuggestionsMinimumDistance = 2
	c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
	return c
}

// configPath returns the file that --config names, or the default file if it exists.
func configPath(c *cobra.Command) string {
	path, _ := c.Flags().GetString("config") // every verb has it
	if path != "" {
		return path
	}
	if _, err := os.Stat(config.UsualFile); errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	return config.UsualFile
}

// settings returns the settings that the flags, the environment and the config file define.
func settings(c *cobra.Command) (*config.Host, error) { return config.Load(configPath(c), c.Flags()) }

// current returns the settings of the running host, or those of settings if no host answers.
func current(c *cobra.Command) (*config.Host, error) {
	running, err := client(c).Config(c.Context())
	if err != nil {
		return settings(c)
	}
	var h config.Host
	return &h, json.Unmarshal(running.Settings, &h)
}

// client returns a client for the running host. If the config file is invalid, it uses the default
// socket and says so: an invalid file must not prevent a user from querying the host. Only
// inherited flags are settings; flags of the verb itself are not.
func client(c *cobra.Command) *admin.Client {
	if h, err := config.Load(configPath(c), c.InheritedFlags()); err == nil {
		return admin.NewClient(h.AdminSocket)
	}
	socket, _ := c.Flags().GetString("admin-socket")
	if h, err := config.Load("", c.InheritedFlags()); err == nil {
		socket = h.AdminSocket
		fmt.Fprintf(c.ErrOrStderr(), "pointsman: the config file is invalid (see: pointsman config validate); using the socket %s\n", socket)
	}
	return admin.NewClient(socket)
}

// A format is the value of -o.
type format string

func (f *format) String() string { return string(*f) }
func (f *format) Type() string   { return "FORMAT" }

func (f *format) Set(s string) error {
	switch s {
	case "table", "json", "yaml":
		*f = format(s)
		return nil
	}
	return errors.New("want table, json or yaml")
}

// addFormat defines -o.
func addFormat(c *cobra.Command) *format {
	f := format("table")
	c.Flags().VarP(&f, "output", "o", "table, json or yaml")
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"table", "json", "yaml"}, cobra.ShellCompDirectiveNoFileComp)) // the flag exists
	return &f
}

// printing completes c: it prints the result of get with -o. If get also returns errDegraded or
// errRefused, it prints the result and then fails.
func printing[T any](c *cobra.Command, get func(*cobra.Command, []string) (T, error), table func(io.Writer, T)) *cobra.Command {
	out := addFormat(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		v, err := get(c, args)
		if err != nil && !errors.Is(err, errDegraded) && !errors.Is(err, errRefused) {
			return err
		}
		return cmp.Or(out.print(c.OutOrStdout(), v, func(w io.Writer) { table(w, v) }), err)
	}
	return c
}

// printDone prints the host's response to a request, unless it failed.
func printDone(c *cobra.Command, done admin.Done, err error) error {
	if err == nil {
		fmt.Fprintln(c.OutOrStdout(), done.Message)
	}
	return err
}

// writeField writes a row of a table with a label and a value. It writes nothing if the value is empty.
func writeField(w io.Writer, label, text string) {
	if text != "" {
		fmt.Fprintf(w, "%s\t%s\n", label, strings.ReplaceAll(text, "\n", "\n\t")) // a plugin's text may have several lines
	}
}

// print prints v in the format. write writes the table, with tabs between cells.
func (f *format) print(w io.Writer, v any, write func(io.Writer)) error {
	if *f == "table" {
		t := newTable(w)
		write(t)
		return t.Flush()
	}
	data, err := json.MarshalIndent(v, "", "  ")
	if err == nil && *f == "yaml" {
		data, err = yaml.JSONToYAML(data)
	}
	if err == nil {
		_, err = fmt.Fprintln(w, strings.TrimSuffix(string(data), "\n"))
	}
	return err
}
