// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"fmt"
	"os"
	"strings"
)

// zombie reports whether a process has ended and only waits to be read.
func zombie(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, after, ok := strings.Cut(string(stat), ") ")
	return err == nil && ok && strings.HasPrefix(after, "Z")
}
