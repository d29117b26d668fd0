// SPDX-License-Identifier: Apache-2.0

//go:build !linux && !windows

package launch

import "syscall"

func processAttr() *syscall.SysProcAttr { return nil }

// setOOMScore does nothing: this system has no OOM score.
func setOOMScore(int, int) error { return nil }
