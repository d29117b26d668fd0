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

// FailEnv names the point at which a swap goes wrong, and how: "cutting/retire=kill"
// kills the host there, "proving/prove=error" makes the action fail, and
// "holding/hold=wait" waits there until the file that GateEnv names is gone.
const (
	FailEnv = "POINTSMAN_FAIL"
	GateEnv = "POINTSMAN_FAIL_GATE"
)

// Fail goes wrong at the point that the environment names.
func Fail(point string) error {
	switch os.Getenv(FailEnv) {
	case point + "=kill":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // until it is here
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
