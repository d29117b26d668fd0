// SPDX-License-Identifier: Apache-2.0

//go:build !windows

package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"
)

// mayBeManaged has nothing to define: see underManager.
func mayBeManaged(*cobra.Command) {}

// underManager is for Windows, where a service's process has to answer to what started it.
func underManager(*cobra.Command, func(context.Context, io.Writer) error) (done bool, err error) {
	return false, nil
}

// managerVerbs are none: what runs the host as a service are units, or a DaemonSet.
func managerVerbs() []*cobra.Command { return nil }
