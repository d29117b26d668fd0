// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"os"
	"strconv"
)

// memory returns how many bytes of this process are resident; zero: not known.
func memory() uint64 {
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	fields := bytes.Fields(statm)
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseUint(string(fields[1]), 10, 64)
	if err != nil {
		return 0
	}
	return pages * uint64(os.Getpagesize())
}
