// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"fmt"
	"os"
	"strconv"
	"syscall"
)

// apart has a plugin end with the thread that starts it, and run in a session of its own, so that what is typed at the
// host's terminal does not reach it.
func apart() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
}

// setOOMScore asks the kernel to spare the process, or not, when memory runs out (proc_pid_oom_score_adj(5)).
func setOOMScore(pid, score int) error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), []byte(strconv.Itoa(score)), 0)
}
