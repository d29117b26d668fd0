// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"github.com/pointsman/pointsman/plugins/internal/nftnl"
)

// Writers reports the names of programs that write to nf_tables. It slows down writers, so open it only after a
// repair.
type Writers struct{ conn *nftnl.Conn }

// ListenToWriters opens a listener in the network namespace of the calling thread.
func ListenToWriters() (*Writers, error) {
	conn, err := nftnl.Dial()
	if err != nil {
		return nil, err
	}
	if err := conn.SubscribeCommits(); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return &Writers{conn}, nil
}

// Close closes the listener.
func (w *Writers) Close() error { return w.conn.Close() }

// Others adds to names the other programs that have written since the last call: "nft (pid 7)".
func (w *Writers) Others(names []string) []string {
	w.conn.Commits(func(pid uint32, program string) {
		name := fmt.Sprintf("%s (pid %d)", program, pid)
		if !own.has(int(pid)) && len(names) < 3 && !slices.Contains(names, name) {
			names = append(names, name)
		}
	})
	return names
}

// children are the processes that this process started most recently.
type children struct {
	mu   sync.Mutex // guards the fields below
	pids [64]int
	next int
}

var own children

func (c *children) add(pid int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pids[c.next%len(c.pids)] = pid
	c.next++
}

// has reports whether pid is a thread of this process, or one of the children.
func (c *children) has(pid int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err := os.Stat(fmt.Sprintf("/proc/self/task/%d", pid))
	return err == nil || slices.Contains(c.pids[:], pid)
}
