// SPDX-License-Identifier: Apache-2.0

/*
Command kubectl-pointsman is a kubectl plugin that runs a verb of pointsman on all nodes at once. It
executes the verb in each pod of Pointsman (fleet.go) and prints the answers as one table (print.go).
It only runs verbs that change nothing. Start reading at command.
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
	klog.LogToStderr(false) // a row of the table has the error of each node
	klog.SetOutput(io.Discard)
	os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr, connect))
}

// Exit statuses, as of pointsman. 2 means that all nodes have answered.
const (
	exitFailed   = 1 // or diff found a difference
	exitNoAnswer = 3
	exitUsage    = 64
)

const asJSON = "-o=json" // the last argument for verbs whose answer is decoded

// A failure is an error that is not a mistake on the command line.
type failure struct {
	error // nil if everything has been printed
	exit  int
}

// execute runs the verb that args name, and returns the exit status.
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

// flags are the values of the flags, and the function that connects to the cluster.
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
		Short: "Query Pointsman on all nodes at once",
		Long: `Kubectl pointsman queries Pointsman on all nodes at once, by exec in its pods. If a node does not
answer in time, its row has the reason.

It exits 0 if all is well, 1 if it fails or diff finds a difference, 2 if there is a warning, and 3 if
a node does not answer. It needs permission to list pods and nodes, and to get and create pods/exec
in the namespace of Pointsman.`,
		Annotations:  map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl pointsman"},
		SilenceUsage: true, SilenceErrors: true,
	}
	all := root.PersistentFlags()
	all.StringVar(&f.node, "node", "", "query only this node")
	all.StringVarP(&f.output, "output", "o", "table", "table, json or yaml")
	all.DurationVar(&f.timeout, "timeout", 2*time.Second, "time limit for the answer of each node")
	all.StringVar(&f.rules.ExplicitPath, clientcmd.RecommendedConfigPathFlag, "", "path to the kubeconfig file to use")
	kube := clientcmd.RecommendedConfigOverrideFlags("")
	kube.ContextOverrideFlags.Namespace.Description = "the namespace of Pointsman; otherwise " + defaultNamespace + ", or where its pods are"
	clientcmd.BindOverrideFlags(&f.overrides, all, kube)
	for _, v := range verbs {
		c := &cobra.Command{Use: v.name + v.args, Short: v.short, Long: v.long, Args: cobra.ExactArgs(len(strings.Fields(v.args)))}
		c.RunE = func(c *cobra.Command, args []string) error { return v.run(c, f, args) }
		if v.name == "explain" {
			c.Flags().BoolVar(&f.try, "try", false, "open one connection to each endpoint that may answer (TCP), and print the result")
		} else {
			c.Flags().BoolVar(&f.problems, "problems", false, "only nodes that are not well or do not answer, and only events that are warnings")
		}
		if v.name == "events" {
			c.Flags().DurationVar(&f.since, "since", 0, "only events of this last period, such as 10m")
		}
		root.AddCommand(c)
	}
	return root
}

// run runs the verb on the nodes, and prints the answers.
func (v *verb) run(c *cobra.Command, f *flags, args []string) (err error) {
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
	if explain && (node == "" || q.Pod != "") { // a host knows no names of pods
		at, caller, err := fleet.locateCaller(c.Context(), q, args[0])
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
