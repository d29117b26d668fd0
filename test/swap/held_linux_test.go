// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// minimum returns the smallest of several counts: what exists only for a moment does not count.
func (n *node) minimum(count func() int) int {
	n.Helper()
	least := count()
	for range 20 {
		_, _ = n.Status(n.Context()) // another moment: the host has answered a request meanwhile
		least = min(least, count())
	}
	return least
}

// files returns the number of the host's open files.
func (n *node) files() int {
	n.Helper()
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", n.cmd.Process.Pid))
	if err != nil {
		n.Fatal(err)
	}
	return len(list)
}

// goroutines returns the number of the host's goroutines, from its metrics.
func (n *node) goroutines() int {
	n.Helper()
	text := get(10249, "metrics")
	_, rest, _ := strings.Cut(text, "\ngo_goroutines ")
	count, _, _ := strings.Cut(rest, "\n")
	number, err := strconv.Atoi(count)
	if err != nil {
		n.Fatalf("the metrics have no number of goroutines: %v", err)
	}
	return number
}
