// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/pointsman/pointsman/host/binaries"
	"github.com/pointsman/pointsman/host/config"
	"github.com/pointsman/pointsman/host/watch"
)

func configValidateVerb() *cobra.Command {
	var fileOnly bool
	c := &cobra.Command{
		Use:   "validate [FILE]",
		Short: "Check a config file on this node",
		Args:  cobra.MaximumNArgs(1),
	}
	c.Flags().BoolVar(&fileOnly, "file-only", false, "check only the file, because it is for another node")
	c.RunE = func(c *cobra.Command, args []string) error {
		path := configPath(c)
		if len(args) > 0 {
			path = args[0]
		}
		if path == "" {
			return usageError{errors.New("which file? there is no " + config.UsualFile + "; try: pointsman config validate FILE")}
		}
		h, err := config.Load(path, c.Flags())
		if err != nil {
			return err
		}
		var problems, notes config.Problems
		if !fileOnly {
			problems, notes = binaries.Validate(c.Context(), h)
			problems = append(kubeconfigProblems(h), problems...)
		}
		for _, w := range append(h.From.Warnings, notes...) {
			fmt.Fprintln(c.OutOrStdout(), w)
		}
		if len(problems) > 0 {
			return problems
		}
		fmt.Fprintf(c.OutOrStdout(), "%s is good: mode %s\n", path, h.Mode)
		return nil
	}
	return c
}

// kubeconfigProblems returns why the configured kubeconfig is invalid. It does not connect to the API
// server.
func kubeconfigProblems(h *config.Host) config.Problems {
	const field = "source.kubernetes.kubeconfig"
	if h.Source.Kubernetes == nil || h.Source.Kubernetes.Kubeconfig == "" {
		return nil // a pod's service account, which may not exist here
	}
	_, err := watch.Connect(watch.Connection{Kubeconfig: h.Source.Kubernetes.Kubeconfig, Observe: func(watch.Request) {}})
	if err == nil {
		return nil
	}
	return config.Problems{h.Problem(field, err.Error(), "")}
}
