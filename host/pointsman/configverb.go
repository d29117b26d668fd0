// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/pointsman/pointsman/host/binaries"

	"github.com/spf13/cobra"

	"github.com/pointsman/pointsman/host/config"
	"github.com/pointsman/pointsman/host/watch"
)

func configVerb() *cobra.Command {
	return group("config", "Check and show the settings", configValidateVerb(), configShowVerb(), configDefaultsVerb(), configKubeconfigVerb())
}

func configShowVerb() *cobra.Command {
	var running bool
	c := verb("show", "Show the settings with which a host would start, or those of the running host", cobra.NoArgs)
	out := addFormat(c)
	*out = "yaml" // the format of the config file
	c.Flags().BoolVar(&running, "running", false, "show the settings of the running host")
	config.AddFlags(c.Flags())
	c.RunE = func(c *cobra.Command, _ []string) error {
		if *out == "table" {
			*out = "yaml"
		}
		var shown any
		var err error
		if running {
			shown, err = client(c).Config(c.Context())
		} else {
			shown, err = settings(c)
		}
		if err != nil {
			return err
		}
		return out.print(c.OutOrStdout(), shown, nil)
	}
	return c
}

func configDefaultsVerb() *cobra.Command {
	c := verb("defaults", "Print a config file with every field, its default and its description", cobra.NoArgs)
	c.RunE = func(c *cobra.Command, _ []string) error {
		_, err := io.WriteString(c.OutOrStdout(), config.Defaults)
		return err
	}
	return c
}

func configKubeconfigVerb() *cobra.Command {
	var account string
	c := verb("kubeconfig FROM TO", "Write a kubeconfig with the API server's address of another kubeconfig", cobra.ExactArgs(2))
	c.RunE = func(_ *cobra.Command, args []string) error { return watch.WriteKubeconfig(args[0], args[1], account) }
	c.Flags().StringVar(&account, "service-account", watch.ServiceAccount, "the `FOLDER` of the service account's token and ca.crt")
	return c
}

func configValidateVerb() *cobra.Command {
	var fileOnly bool
	c := verb("validate [FILE]", "Check a config file on this node", cobra.MaximumNArgs(1))
	c.Flags().BoolVar(&fileOnly, "file-only", false, "check only the file, because it is for another node")
	c.RunE = func(c *cobra.Command, args []string) error {
		path := append(args, configPath(c))[0]
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
	if h.Source.Kubernetes == nil || h.Source.Kubernetes.Kubeconfig == "" {
		return nil // a pod's service account, which may not exist here
	}
	_, err := watch.Connect(watch.Connection{Kubeconfig: h.Source.Kubernetes.Kubeconfig, Observe: func(watch.Request) {}})
	if err == nil {
		return nil
	}
	return config.Problems{h.Problem("source.kubernetes.kubeconfig", err.Error(), "")}
}
