// SPDX-License-Identifier: Apache-2.0

//go:build !windows

package launch

import "os/exec"

// Tie does nothing here: a verb's children end with its context, and a signal at the terminal
// reaches them, too.
func Tie() error { return nil }

// begin starts cmd.
func begin(cmd *exec.Cmd) (*exec.Cmd, error) { return cmd, cmd.Start() }
