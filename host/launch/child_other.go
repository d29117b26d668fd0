// SPDX-License-Identifier: Apache-2.0

//go:build !linux && !windows

package launch

import "syscall"

func apart() *syscall.SysProcAttr { return nil }

// setOOMScore has nothing to do: this system has no score for when memory runs out.
func setOOMScore(int, int) error { return nil }
