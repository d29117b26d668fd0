// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/pointsman/pointsman/host/config"
	"github.com/pointsman/pointsman/host/watch"
)

func configVerb() *cobra.Command {
	return group("config", "Check and show the settings", configValidateVerb(), configShowVerb(), configDefaultsVerb(), configKubeconfigVerb())
}

func configShowVerb() *cobra.Command {
	var running bool
	c := &cobra.Command{
		Use:   "show",
		Short: "Show the settings with which a host would start, or those of the running host",
		Args:  cobra.NoArgs,
	}
	out := addFormat(c)
	*out = "yaml" // the format of the config file
	c.Flags().BoolVar(&running, "running", false, "show the settings of the running host")
	config.AddFlags(c.Flags())
	c.RunE = func(c *cobra.Command, _ []string) error {
		if *out == "table" {
			*out = "yaml"
		}
		if running {
			conf, err := client(c).Config(c.Context())
			if err != nil {
				return err
			}
			return out.print(c.OutOrStdout(), conf, nil)
		}
		h, err := settings(c)
		if err != nil {
			return err
		}
		return out.print(c.OutOrStdout(), h, nil)
	}
	return c
}

func configDefaultsVerb() *cobra.Command {
	return &cobra.Command{
		Use:   "defaults",
		Short: "Print a config file with every field, its default and its description",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			_, err := io.WriteString(c.OutOrStdout(), config.Defaults)
			return err
		},
	}
}

func configKubeconfigVerb() *cobra.Command {
	var account string
	c := &cobra.Command{
		Use:   "kubeconfig FROM TO",
		Short: "Write a kubeconfig with the API server's address of another kubeconfig",
		Args:  cobra.ExactArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			return watch.WriteKubeconfig(args[0], args[1], account)
		},
	}
	c.Flags().StringVar(&account, "service-account", watch.ServiceAccount, "the `FOLDER` of the service account's token and ca.crt")
	return c
}
