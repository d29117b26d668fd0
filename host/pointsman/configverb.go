// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/pointsman/pointsman/host/config"
)

func configVerb() *cobra.Command {
	return group("config", "Check, show and explain the settings", configValidateVerb(), configShowVerb(), configDefaultsVerb())
}

func configShowVerb() *cobra.Command {
	var origin, running bool
	c := &cobra.Command{
		Use:   "show",
		Short: "Show the settings that a host would begin with, or one has",
		Args:  noWords(),
	}
	out := addFormat(c)
	*out = "yaml" // there is no better table of settings than the file itself
	c.Flags().BoolVar(&origin, "origin", false, "say where each value comes from")
	c.Flags().BoolVar(&running, "running", false, "ask the running host for those in force")
	config.AddFlags(c.Flags())
	c.RunE = func(c *cobra.Command, _ []string) error {
		if running {
			if origin {
				return usageError{errors.New("a running host does not tell where its settings came from; leave --origin or --running out")}
			}
			conf, err := client(c).Config(c.Context())
			if err != nil {
				return err
			}
			if *out == "table" {
				*out = "yaml"
			}
			return out.print(c.OutOrStdout(), conf, nil)
		}
		h, err := settings(c)
		if err != nil {
			return err
		}
		write := h.YAML
		if *out == "json" {
			write = h.JSON
		}
		data, err := write(origin)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(c.OutOrStdout(), "%s\n", bytes.TrimRight(data, "\n"))
		return err
	}
	return c
}

func configDefaultsVerb() *cobra.Command {
	return &cobra.Command{
		Use:   "defaults",
		Short: "Print a config file with every field, its default and what it is for",
		Args:  noWords(),
		RunE: func(c *cobra.Command, _ []string) error {
			_, err := io.WriteString(c.OutOrStdout(), config.Defaults())
			return err
		},
	}
}
