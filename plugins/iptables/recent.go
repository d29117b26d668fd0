// SPDX-License-Identifier: Apache-2.0

package iptables

import "sync"

// recent are the process ids of the last programs that wrote for us. What the
// kernel says was done by one of them is no drift. Mostly it does not say so, but
// it may when a program was quicker than we. It is safe for concurrent use.
type recent struct {
	mu   sync.Mutex // guards what follows
	pids [256]int
	next int
}

func (r *recent) add(pid int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pids[r.next%len(r.pids)] = pid
	r.next++
}

func (r *recent) has(pid int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.pids {
		if p == pid && pid != 0 {
			return true
		}
	}
	return false
}
