// SPDX-License-Identifier: Apache-2.0

package supervise

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/pointsman/pointsman/host/launch"
)

const (
	// remainderGrace is how long the tools of a plugin that has ended may take to finish.
	remainderGrace = time.Second

	// remainderRounds is how often what is left is ended: it may start more meanwhile.
	remainderRounds = 3
)

// A remainder is what the process of a launch started and left behind when it ended: the
// processes with that launch in their environment. An empty one has none.
type remainder string

// remainderOf returns the remainder of a process; an empty one while the process lives, as where
// another host has taken it over.
func remainderOf(remote *launch.Plugin) remainder {
	select {
	case <-remote.Exited():
		return remainder(remote.Handle().Launch)
	default:
		return ""
	}
}

// end ends these processes, also those in sessions of their own. It returns within ten seconds,
// at once where there are none.
func (r remainder) end() {
	if r == "" {
		return
	}
	for deadline := time.Now().Add(remainderGrace); len(r.processes()) > 0 && time.Now().Before(deadline); {
		time.Sleep(remainderGrace / 10)
	}
	for range remainderRounds {
		left := r.processes()
		if len(left) == 0 {
			return
		}
		var ending sync.WaitGroup
		for _, m := range left {
			ending.Go(func() { _ = m.End(context.Background()) }) // the kernel has it, or it is not ours to end
		}
		ending.Wait()
	}
}

// processes returns those that are to end.
func (r remainder) processes() []launch.Marked {
	marked, err := launch.FindMarked()
	if err != nil {
		return nil // without /proc nothing can be known of them
	}
	return slices.DeleteFunc(marked, func(m launch.Marked) bool {
		return m.Mark.Launch != string(r)
	})
}
