// SPDX-License-Identifier: Apache-2.0

package supervise

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/pointsman/pointsman/host/launch"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/helper"
)

const (
	// helperGrace is how long the tools of a plugin that has ended may take to finish.
	helperGrace = time.Second

	// helperRounds is how often what is left is ended: it may start more meanwhile.
	helperRounds = 3
)

// A remainder is what the process of a launch started and left behind when it ended.
type remainder struct {
	launch string // empty: nothing is known of it
	dir    string // the plugin's state directory: helpers that are declared there run on; empty: none does
}

// left returns the remainder of a launch that never came so far as to say what it is.
func (p Plugin) left(launch string) remainder { return remainder{launch, p.StateDir} }

// remainder returns what the process leaves; nothing of one that has not ended, as where another
// host has taken it over. The helpers of a dataplane that dies with its process end too.
func (v *live) remainder(p Plugin) remainder {
	r := p.left(ended(v.remote))
	if slices.Contains(v.description.Limits, sdk.LimitDiesWithProcess) {
		r.dir = ""
	}
	return r
}

// ended returns the launch of a process that has ended; empty: it has not, or it is not known.
func ended(remote *launch.Plugin) string {
	select {
	case <-remote.Exited():
		return remote.Handle().Launch
	default:
		return ""
	}
}

// end ends it, also what is in sessions of its own: the tools that the plugin ran, and long-lived
// processes that are not declared. They are known by the launch in their environment. It returns
// within ten seconds, at once where there are none.
func (r remainder) end() {
	if r.launch == "" {
		return
	}
	for deadline := time.Now().Add(helperGrace); len(r.processes()) > 0 && time.Now().Before(deadline); {
		time.Sleep(helperGrace / 10)
	}
	for range helperRounds {
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
		return m.Mark.Launch != r.launch || r.dir != "" && declaredIn(r.dir, m.PID)
	})
}

// declaredIn reports whether a process belongs to a helper that is declared in a plugin's state
// directory. Where what is there cannot be read, all are: to end what serves is worse than to
// leave what does not.
func declaredIn(stateDir string, pid int) bool {
	all, err := helper.All(helper.Dir(stateDir))
	return err != nil || slices.ContainsFunc(all, func(r helper.Record) bool { return r.Has(pid) })
}
