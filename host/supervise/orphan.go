// SPDX-License-Identifier: Apache-2.0

package supervise

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/pointsman/pointsman/host/launch"
)

// An Orphan is a process with the mark of a launch (launch.Mark) that no file of this host
// names: a plugin whose process.json was lost or never written, or what a plugin
// started and left behind.
type Orphan struct {
	launch.Marked
	Alone string // why it was left alone; empty: it was ended
	Other bool   // it is the plugin of another host, with another state directory
	Err   error  // why it could not be ended
}

// EndOrphans ends the processes of launches by hosts with this state directory, but for
// those of the launches in keep. Of those that it leaves alone it returns why. The caller
// holds the lock on the state directory, so that no other host with it lives. With a dry
// run it only looks.
func EndOrphans(ctx context.Context, stateDir string, keep []string, dryRun bool) ([]Orphan, error) {
	marked, err := launch.FindMarked()
	if err != nil {
		return nil, err
	}
	netns, err := launch.NetNS()
	if err != nil {
		return nil, fmt.Errorf("which network namespace is this: %w", err)
	}
	here := place{netns: netns, uid: uint32(os.Geteuid()), pid: os.Getpid()}
	var found []Orphan
	for _, m := range marked {
		if slices.Contains(keep, m.Mark.Launch) {
			continue
		}
		if o, ok := here.decide(m, m.SeesDir(stateDir)); ok {
			found = append(found, o)
		}
	}
	if !dryRun {
		endAll(ctx, found)
	}
	return found, nil
}

// A place is where this host runs.
type place struct {
	netns string
	uid   uint32
	pid   int
}

// decide says what is to become of a marked process; false: it does not concern this host.
// ours says that its mark names our state directory.
func (p place) decide(m launch.Marked, ours bool) (Orphan, bool) {
	o := Orphan{Marked: m, Other: !ours}
	switch {
	case m.Parent == p.pid:
		return o, false
	case !ours && m.NetNS != p.netns:
		return o, false
	case !ours:
		o.Alone = fmt.Sprintf("its host has the state directory %q", m.Mark.StateDir)
	case m.NetNS != p.netns:
		o.Alone = "it is in another network namespace"
	case m.UID != p.uid:
		o.Alone = fmt.Sprintf("it runs as user %d", m.UID)
	case m.Parent == m.Mark.Host:
		o.Alone = fmt.Sprintf("the host that launched it, process %d, lives", m.Parent)
	}
	return o, true
}

// endAll ends those that are to end: the oldest of each launch first, which is the plugin
// itself, so that it ends what it started; then what is left of that.
func endAll(ctx context.Context, orphans []Orphan) {
	launches := make(map[string][]*Orphan)
	for i := range orphans {
		if o := &orphans[i]; o.Alone == "" {
			launches[o.Mark.Launch] = append(launches[o.Mark.Launch], o)
		}
	}
	var ending sync.WaitGroup
	for _, processes := range launches {
		ending.Go(func() {
			processes[0].Err = processes[0].End(ctx)
			for _, o := range processes[1:] {
				ending.Go(func() { o.Err = o.End(ctx) })
			}
		})
	}
	ending.Wait()
}

// KeptLaunch returns the launch of the process that a former host wrote down for that slot, if
// it still runs; empty: there is none.
func KeptLaunch(stateDir, slot string) string {
	h, err := readHandle(stateDir, slot)
	if err != nil || !runs(h.Handle) {
		return ""
	}
	return h.Launch
}

// mark returns what the plugin's process gets into its environment.
func (p Plugin) mark() launch.Mark {
	dir := cmp.Or(p.HostDir, p.StateDir)
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	return launch.Mark{Launch: launch.NewLaunch(), StateDir: dir, Mode: p.Name, Slot: p.Slot, Host: os.Getpid()}
}

// String returns the process in a sentence.
func (o Orphan) String() string {
	return fmt.Sprintf("process %d, launched for the dataplane %q", o.PID, o.Mark.Mode)
}
