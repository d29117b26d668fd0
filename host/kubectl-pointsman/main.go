// SPDX-License-Identifier: Apache-2.0

/*
Command kubectl-pointsman is a plugin of kubectl: it asks the hosts of all nodes at once what pointsman
asks one. In each pod of Pointsman it runs a verb of the pointsman there, by exec (fleet.go), and prints
the answers as one table (print.go).
*/
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/pointsman/pointsman/host/admin"
)

func main() {
	klog.LogToStderr(false) // why a node does not answer is in its row
	klog.SetOutput(io.Discard)
	os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr, connect))
}

// The exits, which are those of pointsman. With 2 all nodes have answered.
const (
	exitFailed   = 1 // also: diff found a difference
	exitNoAnswer = 3
	exitUsage    = 64
)

const asJSON = "-o=json" // the last word of pointsman's, where its answer is read

// A failure is an error that is no wrong word on the command line.
type failure struct {
	error // nil: all is printed
	exit  int
}

// execute does what the arguments say, and returns the exit.
func execute(args []string, stdout, stderr io.Writer, connect func(clientcmd.ClientConfig) (*fleet, error)) int {
	root := command(&flags{connect: connect, rules: clientcmd.NewDefaultClientConfigLoadingRules()})
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	f := failure{root.ExecuteContext(context.Background()), exitUsage}
	if f.error == nil {
		return 0
	}
	if errors.As(f.error, &f); f.error != nil {
		fmt.Fprintf(stderr, "kubectl pointsman: %v\n", f.error)
	}
	return f.exit
}

// flags are what they say, and what connects to the cluster by them.
type flags struct {
	connect        func(clientcmd.ClientConfig) (*fleet, error)
	rules          *clientcmd.ClientConfigLoadingRules
	overrides      clientcmd.ConfigOverrides
	node, output   string
	timeout, since time.Duration
	problems, try  bool
}

func command(f *flags) *cobra.Command {
	root := &cobra.Command{
		Use:   "kubectl-pointsman",
		Short: "Ask the Pointsman of all nodes at once",
		Long: `Kubectl pointsman asks the Pointsman of all nodes at once, by exec in its pods. A node that
does not answer in time is a row with the reason.

It exits 0 when all is well, 1 when it failed or diff found a difference, 2 when there is something
to look at, 3 when a node did not answer. It needs the rights to list pods and nodes, and to get and
create pods/exec in the namespace of Pointsman.`,
		Annotations:  map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl pointsman"},
		SilenceUsage: true, SilenceErrors: true,
	}
	all := root.PersistentFlags()
	all.StringVar(&f.node, "node", "", "ask this node alone")
	all.StringVarP(&f.output, "output", "o", "table", "table, json or yaml")
	all.DurationVar(&f.timeout, "timeout", 2*time.Second, "how long each node has to answer")
	all.StringVar(&f.rules.ExplicitPath, clientcmd.RecommendedConfigPathFlag, "", "path to the kubeconfig file to use")
	kube := clientcmd.RecommendedConfigOverrideFlags("")
	kube.ContextOverrideFlags.Namespace.Description = "the namespace of Pointsman; otherwise " + usual + ", or where its pods are"
	clientcmd.BindOverrideFlags(&f.overrides, all, kube)
	for _, v := range verbs {
		c := &cobra.Command{Use: v.name + v.words, Short: v.short, Long: v.long, Args: cobra.ExactArgs(len(strings.Fields(v.words)))}
		c.RunE = func(c *cobra.Command, args []string) error { return v.ask(c, f, args) }
		if v.name == "explain" {
			c.Flags().BoolVar(&f.try, "try", false, "open one connection to each endpoint that may answer (TCP), and say what came back")
		} else {
			c.Flags().BoolVar(&f.problems, "problems", false, "only nodes that are not well or do not answer; of events, only warnings")
		}
		if v.name == "events" {
			c.Flags().DurationVar(&f.since, "since", 0, "only what happened in this time until now")
		}
		root.AddCommand(c)
	}
	return root
}

// ask asks the nodes, and prints what they say.
func (v *verb) ask(c *cobra.Command, f *flags, args []string) (err error) {
	var q admin.Question
	explain := v.name == "explain"
	if explain {
		if q, err = admin.ParseQuestion(args[0], args[1]); err != nil {
			return err
		}
	}
	if !slices.Contains([]string{"table", "json", "yaml"}, f.output) || f.timeout <= 0 || f.since < 0 {
		return errors.New("want table, json or yaml for -o, and a time such as 2s for --timeout and --since")
	}
	fleet, err := f.connect(clientcmd.NewNonInteractiveDeferredLoadingClientConfig(f.rules, &f.overrides))
	if err != nil {
		return failure{err, exitFailed}
	}
	fleet.timeout, fleet.progress = f.timeout, c.ErrOrStderr()
	hosts, err := fleet.hosts(c.Context(), f.overrides.Context.Namespace)
	if err != nil {
		return failure{err, exitFailed}
	}
	node, words := f.node, append([]string{v.name}, args...)
	if explain && (node == "" || q.Pod != "") { // a host knows no pod by its name
		at, caller, err := fleet.place(c.Context(), q, args[0])
		if err != nil {
			return err
		}
		if node = cmp.Or(node, at); node != at {
			_, addr, _ := strings.Cut(caller, ":")
			caller = admin.CallerOutside + ":" + addr
		}
		words[1] = caller
	}
	if node != "" {
		if hosts = slices.DeleteFunc(hosts, func(h host) bool { return h.node != node }); len(hosts) == 0 {
			hosts = []host{{node: node}}
		}
	}
	if f.try {
		words = append(words, "--try")
	}
	if f.since > 0 {
		words = append(words, "--since="+f.since.String())
	}
	if v.rows != nil || f.output != "table" {
		words = append(words, asJSON)
	}
	return v.print(c.OutOrStdout(), f, fleet.ask(c.Context(), hosts, words))
}
