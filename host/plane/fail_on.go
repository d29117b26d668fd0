// SPDX-License-Identifier: Apache-2.0

//go:build failpoints && unix

package plane

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// FailEnv selects the failpoint and its effect: "cutting/retire=kill" kills the host there,
// "proving/prove=error" makes the action fail, and "holding/hold=wait" waits until the file
// named by GateEnv is removed.
const (
	FailEnv = "POINTSMAN_FAIL"
	GateEnv = "POINTSMAN_FAIL_GATE"
)

// Fail injects the fault if point is the one that FailEnv selects.
func Fail(point string) error {
	switch os.Getenv(FailEnv) {
	case point + "=kill":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // until the signal arrives
	case point + "=error":
		return errors.New("the failpoint " + point)
	case point + "=wait":
		fmt.Fprintln(os.Stderr, "failpoint reached:", point)
		for range 500 {
			if _, err := os.Stat(os.Getenv(GateEnv)); err != nil {
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	return nil
}
