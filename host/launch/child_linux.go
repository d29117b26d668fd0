// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"fmt"
	"os"
	"strconv"
	"syscall"
)

// processAttr makes the kernel kill the plugin when the thread that started it ends, and gives the plugin its own
// session, so that it gets no signals from the host's terminal.
func processAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
}

// setOOMScore sets the process's oom_score_adj (proc_pid_oom_score_adj(5)).
func setOOMScore(pid, score int) error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), []byte(strconv.Itoa(score)), 0)
}
