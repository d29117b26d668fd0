// SPDX-License-Identifier: Apache-2.0

//go:build unix

package demo

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// apart keeps a terminal's Ctrl-C from cmd: the demo ends what it has started
// itself, in order.
func apart(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// alive reports whether a process is there. A zombie is not: nothing of it acts.
func alive(pid int) bool { return pid > 0 && syscall.Kill(pid, 0) == nil && !zombie(pid) }

// zombie reports whether a process has ended and only waits to be read, on systems with /proc.
func zombie(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, after, ok := strings.Cut(string(stat), ") ")
	return err == nil && ok && strings.HasPrefix(after, "Z")
}
