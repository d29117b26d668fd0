// SPDX-License-Identifier: Apache-2.0

/*
Command pointsman is the host: it watches Services, decides what this node serves
of them, and keeps a dataplane plugin told. Its other verbs ask a running host, or
look at this machine's files and plugins.

This package constructs, connects and waits; what it connects is in the folders
beside it:

	watch ─▶ track ─▶ feed ─▶ a plugin that supervise keeps alive
	                   └───▶ report ─▶ log, status        admin ◀─ other verbs
*/
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/config"
)

func main() { os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr)) }

// The exits; docs/cli.md promises them.
const (
	exitOK          = 0
	exitFailed      = 1
	exitDegraded    = 2
	exitUnreachable = 3
	exitSuperseded  = 3 // of mode swap --wait
	exitUsage       = 64
)

// errDegraded and errRefused end a verb that has printed what is wrong.
var (
	errDegraded = errors.New("degraded")
	errRefused  = errors.New("refused")
)

// A usageError is a wrong word on the command line.
type usageError struct{ error }

// execute does what the arguments say, and returns the exit.
func execute(args []string, stdout, stderr io.Writer) int {
	root := rootVerb()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(context.Background())
	var usage usageError
	var problems config.Problems
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errDegraded):
		return exitDegraded
	case errors.Is(err, errRefused):
		return exitFailed
	case errors.As(err, &usage):
		fmt.Fprintf(stderr, "pointsman: %v\n", err)
		return exitUsage
	case errors.As(err, &problems):
		fmt.Fprintln(stderr, err) // each line begins with its file
		return exitFailed
	}
	fmt.Fprintf(stderr, "pointsman: %v\n", err)
	switch {
	case errors.Is(err, admin.ErrUnreachable):
		return exitUnreachable
	case errors.Is(err, errSuperseded):
		return exitSuperseded
	}
	return exitFailed
}

func rootVerb() *cobra.Command {
	root := group("pointsman", "A service proxy for Kubernetes nodes, with dataplanes as plugins",
		runVerb(), statusVerb(), serviceVerb(), explainVerb(), diffVerb(), bundleVerb(), doctorVerb(), eventsVerb(), planVerb(), modeVerb(), configVerb(), pluginVerb(), cleanupVerb(), versionVerb())
	root.SilenceErrors = true
	root.SilenceUsage = true
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usageError{fmt.Errorf("%w; try: %s --help", err, c.CommandPath())}
	})
	flags := root.PersistentFlags()
	flags.String("config", "", "the config file (default "+config.UsualFile+" if it is there)")
	config.AddVerbFlags(flags)
	strict(root)
	completeFlags(root)
	return root
}

// strict makes the two verbs that cobra adds refuse words they do not know.
func strict(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		switch c.Name() {
		case "completion":
			c.Args, c.RunE = cobra.ArbitraryArgs, helpOrRefuse
		case "help":
			c.Args = func(c *cobra.Command, args []string) error {
				if verb, rest, err := root.Find(args); err != nil || len(rest) > 0 {
					return noSuchVerb(verb, args[len(args)-1])
				}
				return nil
			}
		}
	}
}

// group returns a verb that only has verbs below it.
func group(use, short string, verbs ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Args: cobra.ArbitraryArgs, SuggestionsMinimumDistance: 2}
	c.AddCommand(verbs...)
	c.RunE = helpOrRefuse
	return c
}

// helpOrRefuse returns what a group does that is run itself.
func helpOrRefuse(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return c.Help()
	}
	return noSuchVerb(c, args[0])
}

func noSuchVerb(c *cobra.Command, word string) error {
	hint := c.CommandPath() + " --help"
	if like := c.SuggestionsFor(word); len(like) > 0 {
		hint = c.CommandPath() + " " + strings.Join(like, ", or ")
	}
	return usageError{fmt.Errorf("no such verb %q; try: %s", word, hint)}
}

// words checks how many words follow a verb; what names them.
func words(least, most int, what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if least <= len(args) && len(args) <= most {
			return nil
		}
		return usageError{fmt.Errorf("%s: want %s, not %d words; try: %s --help", c.CommandPath(), what, len(args), c.CommandPath())}
	}
}

func noWords() cobra.PositionalArgs { return words(0, 0, "nothing behind it") }

// configPath returns the file that --config names, or the usual one if it is there.
func configPath(c *cobra.Command) string {
	path, _ := c.Flags().GetString("config") // every verb has it
	if path != "" {
		return path
	}
	usual := config.UsualFile
	if _, err := os.Stat(usual); errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	return usual
}

// settings returns what the flags, the environment and the config file say.
func settings(c *cobra.Command) (*config.Host, error) { return config.Load(configPath(c), c.Flags()) }

// client reaches the running host. A config file that is wrong must not keep a user
// from asking what is going on: then the host is looked for where it usually is. A flag of the verb's
// own is no setting.
func client(c *cobra.Command) *admin.Client {
	socket, fallback := adminSocket(c)
	if fallback {
		fmt.Fprintf(c.ErrOrStderr(), "pointsman: the config file cannot be used (see: pointsman config validate); asking on %s\n", socket)
	}
	return admin.NewClient(socket)
}

// adminSocket returns where the running host is asked, and whether that is the usual place because the
// config file cannot be used.
func adminSocket(c *cobra.Command) (path string, fallback bool) {
	if h, err := config.Load(configPath(c), c.InheritedFlags()); err == nil {
		return h.AdminSocket, false
	}
	if h, err := config.Load("", c.InheritedFlags()); err == nil {
		return h.AdminSocket, true
	}
	path, _ = c.Flags().GetString("admin-socket")
	return path, false
}

// A format is how a verb prints: the value of -o.
type format string

func (f *format) String() string { return string(*f) }
func (f *format) Type() string   { return "FORMAT" }

func (f *format) Set(s string) error {
	switch s {
	case "table", "json", "yaml":
		*f = format(s)
		return nil
	}
	return fmt.Errorf("want table, json or yaml")
}

// addFormat defines -o.
func addFormat(c *cobra.Command) *format {
	f := format("table")
	c.Flags().VarP(&f, "output", "o", "table, json or yaml")
	return &f
}

// asking completes c, a verb that asks for something and prints it, as a table by the function.
func asking[T any](c *cobra.Command, ask func(*cobra.Command, []string) (T, error), table func(io.Writer, T)) *cobra.Command {
	out := addFormat(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		v, err := ask(c, args)
		if err != nil {
			return err
		}
		return out.print(c.OutOrStdout(), v, func(w io.Writer) { table(w, v) })
	}
	return c
}

// acting is what a verb does that has the host do something, and prints what it says.
func acting(act func(*cobra.Command, []string) (admin.Done, error)) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error {
		done, err := act(c, args)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(c.OutOrStdout(), done.Message)
		return err
	}
}

// print prints v, as a table by the function.
func (f *format) print(w io.Writer, v any, table func(io.Writer)) error {
	if *f == "table" {
		t := tableFor(w)
		table(t)
		return t.Flush()
	}
	data, err := json.MarshalIndent(v, "", "  ")
	if err == nil && *f == "yaml" {
		data, err = yamlOf(data)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s\n", bytes.TrimSuffix(data, []byte("\n")))
	return err
}

// yamlOf writes JSON as YAML, with the fields in the same order.
func yamlOf(data []byte) ([]byte, error) {
	var n yaml.Node
	if err := yaml.Unmarshal(data, &n); err != nil {
		return nil, err
	}
	plain(&n)
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	err := errors.Join(encoder.Encode(&n), encoder.Close())
	return out.Bytes(), err
}

// plain takes away the braces and quotes that JSON needs and YAML does not.
func plain(n *yaml.Node) {
	n.Style = 0
	for _, child := range n.Content {
		plain(child)
	}
}
