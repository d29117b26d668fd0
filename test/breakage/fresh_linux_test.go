// SPDX-License-Identifier: Apache-2.0

package breakage

import (
	"fmt"
	"os"
	"strings"
	"time"
)

// A fresh node's rules, and how many descriptors its processes have.
type freshness struct {
	rules dump
	files map[string]int
}

// fresh is what a new host makes of the same Services in a new namespace.
func (n *node) fresh() freshness {
	n.Helper()
	other := newNode(n.T, n.backend, n.mode, n.Rand)
	for index, s := range n.services {
		other.write("services/"+s.name()+".yaml", s.manifest())
		other.services[index] = s
	}
	other.begin()
	other.settle()
	other.marked()
	f := freshness{other.dump(), other.open()}
	other.close()
	return f
}

// open is how many files each process of the node has open, by its binary: the least of
// some looks, as some are only there for a moment.
func (n *node) open() map[string]int {
	least := make(map[string]int)
	for range 10 {
		for pid, exe := range n.processes() {
			list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
			name := exe[strings.LastIndexByte(exe, '/')+1:]
			if err == nil && (least[name] == 0 || len(list) < least[name]) {
				least[name] = len(list)
			}
		}
		time.Sleep(100 * time.Millisecond) // until another moment
	}
	return least
}

// descriptors holds each process to no more than a fresh one has.
func (n *node) descriptors(fresh freshness) {
	n.Helper()
	var last map[string]int
	n.within(10*time.Second, "no process has more files open than a fresh one", func() error {
		last = n.open()
		for name, count := range last {
			if count > fresh.files[name]+6 {
				return fmt.Errorf("%s has %d, and a fresh one %d", name, count, fresh.files[name])
			}
		}
		return nil
	})
	n.Logf("open files: %v, of a fresh node %v", last, fresh.files)
}
