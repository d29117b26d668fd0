// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/dataplanes"
	"github.com/pointsman/pointsman/host/phrase"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest"
	"github.com/pointsman/pointsman/sdk/wire"
)

// A called is what `plugin call` prints.
type called struct {
	admin.Meta
	Name     string       `json:"name"`
	Version  string       `json:"version"`
	Role     string       `json:"role"`
	Sent     int          `json:"sent"` // Services
	TookMS   float64      `json:"tookMs"`
	Planned  bool         `json:"planned"`
	Steps    []string     `json:"steps"`
	Failed   []callFailed `json:"failed"`
	Inspects bool         `json:"inspects"` // it can say what it serves; else Served is empty
	Served   []string     `json:"served"`   // as Inspect names it, a frontend each
}

type callFailed struct {
	Service string `json:"service"`
	Why     string `json:"why"`
}

func pluginCallVerb() *cobra.Command {
	var file, options, role string
	var wait bool
	c := &cobra.Command{
		Use:   "call BINARY|ADDRESS --state FILE",
		Short: "Send a plugin one update by hand, and print what it answers",
		Long: `Call starts a plugin, or connects to one that runs by itself (unix:///PATH), sends it everything that
FILE names, as 'pointsman state dump' writes it, gives it a role, and prints what it
answers and what it says that it serves.
A plugin that it started is ended again and cleaned up after; with --wait not before Ctrl-C. One at an
address keeps what it was sent. A host that uses it loses it: call it only without one.
It exits 1 when something failed.`,
		Args: words(1, 1, "the path of a plugin's binary, or the address at which one listens"),

		ValidArgsFunction: eachWord(completeFiles),
	}
	out := addFormat(c)
	c.Flags().StringVar(&file, "state", "", "the file with the state to send; - is standard input")
	c.Flags().StringVar(&role, "role", "standby", "standby, active, draining or yielded")
	c.Flags().StringVar(&options, "options", "", "the plugin's own options, as JSON")
	c.Flags().BoolVar(&wait, "wait", false, "then wait until Ctrl-C")
	c.RunE = func(c *cobra.Command, args []string) error {
		as, err := roleOf(role)
		if err != nil {
			return usageError{fmt.Errorf("--role: %w", err)}
		}
		update, err := readState(file, c.InOrStdin())
		if err != nil {
			return err
		}
		subject, err := subjectOf(args[0])
		if err != nil {
			return err
		}
		subject.Options = []byte(options)
		ctx, stop := untilInterrupt(c.Context())
		defer stop()
		return callOnce(ctx, subject, update, as, func(answer called) error {
			if err := out.print(c.OutOrStdout(), answer, func(w io.Writer) { writeCalled(w, answer) }); err != nil {
				return err
			}
			if wait {
				<-ctx.Done()
			}
			if len(answer.Failed) > 0 {
				return fmt.Errorf("%s failed", phrase.Count(len(answer.Failed), "Service port"))
			}
			return nil
		})
	}
	return c
}

func roleOf(word string) (sdk.Role, error) {
	for r := sdk.Standby; r.Known(); r++ {
		if r.String() == word {
			return r, nil
		}
	}
	return 0, fmt.Errorf("want standby, active, draining or yielded, not %q", word)
}

// readState reads a file that `state dump` wrote.
func readState(file string, stdin io.Reader) (sdk.Update, error) {
	var data []byte
	var err error
	switch file {
	case "":
		return sdk.Update{}, usageError{errors.New("--state: want the file with what to send; try: pointsman state dump > state.yaml")}
	case "-":
		data, err = io.ReadAll(stdin)
	default:
		data, err = os.ReadFile(file)
	}
	if err != nil {
		return sdk.Update{}, fmt.Errorf("--state: %w", err)
	}
	s, err := parseState(data)
	if err != nil {
		return sdk.Update{}, fmt.Errorf("--state: %s: %w", file, err)
	}
	update, err := dataplanes.UpdateOf(s)
	if err != nil {
		return sdk.Update{}, fmt.Errorf("--state: %s: %w", file, err)
	}
	return update, nil
}

// parseState reads YAML, and JSON, which is YAML. A field that is not known is an error.
func parseState(data []byte) (s admin.State, err error) {
	var any any
	if err := yaml.Unmarshal(data, &any); err != nil {
		return s, err
	}
	text, err := json.Marshal(any)
	if err != nil {
		return s, err
	}
	strict := json.NewDecoder(bytes.NewReader(text))
	strict.DisallowUnknownFields()
	if err := strict.Decode(&s); err != nil {
		return s, err
	}
	if s.Kind != "State" || s.APIVersion != admin.APIVersion {
		return s, fmt.Errorf("want apiVersion %s and kind State, not %q and %q", admin.APIVersion, s.APIVersion, s.Kind)
	}
	return s, nil
}

// callOnce begins a session, sends the update, and has show print the answer before the life ends.
func callOnce(ctx context.Context, s sdktest.Subject, u sdk.Update, role sdk.Role, show func(called) error) error {
	dir, err := os.MkdirTemp("", "pointsman-call-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	dp, err := s.Start(ctx, dir)
	if err != nil {
		return err
	}
	defer s.Stop(dp)
	d, err := dp.Configure(ctx, sdk.Setup{Options: s.Options, StateDir: dir, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return fmt.Errorf("configure: %w", err)
	}
	if !s.Single {
		defer func() {
			late, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
			defer cancel()
			_, _ = dp.Cleanup(late, sdk.Leftovers{}) // its process ends in any case
		}()
	}
	if err := dp.SetRole(ctx, sdk.Standby); err != nil {
		return fmt.Errorf("make it standby: %w", err)
	}
	began := time.Now()
	result, err := dp.Sync(ctx, u)
	if err != nil {
		return fmt.Errorf("sync: %w", err)
	}
	took := time.Since(began)
	if err := dp.SetRole(ctx, role); err != nil {
		return fmt.Errorf("make it %s: %w", role, err)
	}
	answer := calledWith(d, role, u, result)
	answer.TookMS = float64(took.Microseconds()) / 1000
	if answer.Inspects, answer.Served, err = inspected(ctx, dp); err != nil {
		return fmt.Errorf("inspect: %w", err)
	}
	return show(answer)
}

func calledWith(d sdk.Description, role sdk.Role, u sdk.Update, r sdk.Result) called {
	a := called{
		Meta: admin.Meta{APIVersion: admin.APIVersion, Kind: "Call"}, Name: d.Name, Version: d.Version, Role: role.String(),
		Sent: len(u.Set), Planned: r.Planned, Steps: append([]string{}, r.Steps...), Failed: []callFailed{},
	}
	for _, f := range r.Failed {
		a.Failed = append(a.Failed, callFailed{f.Name.String(), f.Err.Error()})
	}
	return a
}

// inspected returns what the dataplane says it serves; false: it cannot say.
func inspected(ctx context.Context, dp sdk.Dataplane) (can bool, served []string, err error) {
	served = []string{}
	i, can := dp.(sdk.Inspector)
	if !can {
		return false, served, nil
	}
	err = i.Inspect(ctx, func(s sdk.Served) error {
		served = append(served, fmt.Sprintf("%s %s -> %v", s.Name, s.Frontend, s.Endpoints))
		return nil
	})
	if errors.Is(err, wire.ErrUnsupported) {
		return false, served, nil
	}
	return true, served, err
}

func writeCalled(w io.Writer, a called) {
	what := "confirmed"
	if a.Planned {
		what = "only planned"
	}
	fmt.Fprintf(w, "%s %s %s what it was sent, %s of Services, in %.1f ms; its role is %s\n", a.Name, a.Version, what, phrase.Count(a.Sent, "port"), a.TookMS, a.Role)
	for _, step := range a.Steps {
		fmt.Fprintln(w, "  step:", step)
	}
	for _, f := range a.Failed {
		fmt.Fprintf(w, "  failed: %s: %s\n", f.Service, f.Why)
	}
	if !a.Inspects {
		fmt.Fprintln(w, "  it cannot say what it serves (sdk.Inspector)")
	}
	serves := cmp.Or(map[string]string{sdk.Active.String(): "serves"}[a.Role], "would serve")
	for _, s := range a.Served {
		fmt.Fprintf(w, "  %s: %s\n", serves, s)
	}
}

func stateVerb() *cobra.Command {
	return group("state", "Write what a plugin is sent", stateDumpVerb())
}

func stateDumpVerb() *cobra.Command {
	out := format("yaml")
	c := &cobra.Command{
		Use:   "dump",
		Short: "Write everything that the dataplane would be sent if it began anew, as YAML",
		Long: `Dump asks the running host for everything that the dataplane which serves would be sent if it began
anew: the node, and of each Service its frontends and endpoints, after all that the host
decides. 'pointsman plugin call --state' sends it to a plugin by hand.`,
		Args: noWords(),
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := client(c).State(c.Context())
			if err != nil {
				return err
			}
			if out == "table" {
				return usageError{errors.New("-o: a state has no table; want yaml or json")}
			}
			return out.print(c.OutOrStdout(), s, nil)
		},
	}
	c.Flags().VarP(&out, "output", "o", "yaml or json")
	return c
}
