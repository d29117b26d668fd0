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
	// helperGrace is how long the tools of a plugin that has ended may take to finish.
	helperGrace = time.Second

	// helperRounds is how often what is left is ended: it may start more meanwhile.
	helperRounds = 3
)

// endHelpers ends what the process of a launch started and left behind when it ended, also
// in sessions of its own: the tools that it ran, and long-lived helpers. They are known by
// the launch in their environment. It returns within ten seconds, at once where there
// are none.
func endHelpers(id string) {
	if id == "" {
		return
	}
	for deadline := time.Now().Add(helperGrace); len(helpers(id)) > 0 && time.Now().Before(deadline); {
		time.Sleep(helperGrace / 10)
	}
	for range helperRounds {
		left := helpers(id)
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

// ended returns the launch of a process that has ended; empty: it has not, as where another
// host has taken it over, or it is not known.
func ended(remote *launch.Plugin) string {
	select {
	case <-remote.Exited():
		return remote.Handle().Launch
	default:
		return ""
	}
}

// helpers returns the processes of a launch.
func helpers(id string) []launch.Marked {
	marked, err := launch.FindMarked()
	if err != nil {
		return nil // without /proc nothing can be known of them
	}
	return slices.DeleteFunc(marked, func(m launch.Marked) bool { return m.Mark.Launch != id })
}
