// SPDX-License-Identifier: Apache-2.0

package dataplanes

import "sync"

// A notifier wakes whatever waits for the next change of something. The zero value is ready.
type notifier struct {
	mu   sync.Mutex    // guards next
	next chan struct{} // closed with the next change; nil: nothing waits for it
}

// wait is closed with the next change. Code that looks at what changes gets it before, so that
// no change comes between.
func (n *notifier) wait() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.next == nil {
		n.next = make(chan struct{})
	}
	return n.next
}

func (n *notifier) notify() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.next != nil {
		close(n.next)
		n.next = nil
	}
}
