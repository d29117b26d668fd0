// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/pointsman/pointsman/host/admin"
)

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
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		table(t)
		return t.Flush()
	}
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	if *f == "yaml" {
		if data, err = yamlOf(data); err != nil {
			return err
		}
		_, err = w.Write(data)
		return err
	}
	_, err = fmt.Fprintf(w, "%s\n", data)
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
