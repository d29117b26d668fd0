// SPDX-License-Identifier: Apache-2.0

/*
Package procs has a process that mostly waits run Go on one processor, and on all of them while
there is much to do.

In the host and in a dataplane that leaves packets to the kernel, an event passes through a dozen
goroutines that each do a few microseconds of work: one reads a connection, one takes frames
apart, one decodes, one calls. On several processors the Go scheduler wakes a thread for
nearly each of them, which costs more than the work; on one they run one after the other. Of
10,000 Services a first load is worth all processors, so it is given them.
*/
package procs

import (
	"os"
	"runtime"
	"sync"
)

var state struct {
	sync.Mutex     // guards what follows
	one        int // calls of One that are not undone
	all        int // calls of All that are not done
}

// One has the process run Go on one processor, but during All, until undo is called. Where
// GOMAXPROCS is set in the environment, what it says stays, also during All. It is safe for
// concurrent use, as is All.
func One() (undo func()) { return count(&state.one) }

// All has the process run Go on all processors it may use until done is called, if One would
// keep it from that. It stops the process for some microseconds, as done does.
func All() (done func()) { return count(&state.all) }

// count counts a call until it is taken back.
func count(calls *int) (back func()) {
	add(calls, 1)
	return sync.OnceFunc(func() { add(calls, -1) })
}

func add(calls *int, n int) {
	state.Lock()
	defer state.Unlock()
	before := state.one > 0 && state.all == 0
	*calls += n
	now := state.one > 0 && state.all == 0
	if _, set := os.LookupEnv("GOMAXPROCS"); set || now == before {
		return
	}
	if now {
		runtime.GOMAXPROCS(1)
	} else {
		runtime.SetDefaultGOMAXPROCS()
	}
}
