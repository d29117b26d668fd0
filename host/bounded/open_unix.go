// SPDX-License-Identifier: Apache-2.0

//go:build unix && !linux

package bounded

import (
	"os"
	"syscall"
)

const nonBlocking = syscall.O_NONBLOCK | syscall.O_NOCTTY

func pseudo(*os.File) string { return "" }
