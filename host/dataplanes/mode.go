// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/binaries"
	"github.com/pointsman/pointsman/host/launch"
	"github.com/pointsman/pointsman/host/plane"
	"github.com/pointsman/pointsman/sdk"
)

// Mode returns the serving mode.
func (set *Set) Mode() string { return set.serving().name }

// Show returns the serving mode, the desired mode, and the swap in progress.
func (set *Set) Show() admin.Mode {
	mode := admin.Mode{Mode: set.Mode(), File: set.Now().Mode, Auto: set.Auto(), Swap: set.UnderWay()}
	set.mu.Lock()
	defer set.mu.Unlock()
	f := set.state.Facts
	mode.Last, mode.Wanted, mode.Left = set.shownResult(set.last), f.Wanted(set.fileMode), f.Left
	if set.swap != nil {
		mode.Left = slices.DeleteFunc(slices.Clone(f.Left), func(m string) bool { return m == set.swap.From || m == set.swap.To })
	}
	if mode.Wanted != set.fileMode {
		mode.Asked = mode.Wanted
	}
	return mode
}

// UnderWay returns the swap in progress, or nil.
func (set *Set) UnderWay() *admin.Swap {
	set.mu.Lock()
	defer set.mu.Unlock()
	now := set.swap
	if now == nil {
		return nil
	}
	s := &admin.Swap{From: now.From, To: now.To, Why: now.why, Stage: now.stage, Since: now.since, Began: now.began, Undo: now.undo}
	leaves := set.instance(func(i plane.Instance) bool {
		return i.Up && i.Mode == s.Leaves() && (i.Role == sdk.Draining || i.Role == sdk.Yielded)
	})
	if now.stage == "draining" && leaves != nil {
		s.Until = leaves.Drained.Add(set.Now().Swap.DrainTimeout.Duration)
		if d := set.planes[leaves.ID]; d != nil {
			s.Flows = d.shownStatus().vitals.Flows
		}
	}
	return s
}

// Recently is how long an undone swap, or a restart of the plugin, is worth a warning.
const Recently = 10 * time.Minute

// LastSwap returns the last swap if it is still worth a warning: it was undone, and it is still
// wanted or ended recently. It skips swaps that were undone on request. An undone change of
// mode has precedence over a later successful change of the binary.
func (set *Set) LastSwap() *admin.Swapped {
	set.mu.Lock()
	defer set.mu.Unlock()
	if o := set.last; o.err == "" || o.DryRun {
		if undone := set.ifWorthShowing(set.undone); undone != nil {
			return undone
		}
	}
	return set.ifWorthShowing(set.last)
}

func (set *Set) ifWorthShowing(o result) *admin.Swapped {
	last := set.shownResult(o)
	if last != nil && (last.Error == byReset || last.Error == byOther || o.DryRun) && last.Left == "" {
		return nil
	}
	if last == nil || last.Error == "" || time.Since(last.At) < Recently {
		return last
	}
	if set.Mode() == set.state.Facts.Wanted(set.fileMode) {
		return nil
	}
	return last
}

// dryRuns is larger than the Number of any other Want.
const dryRuns = 1 << 62

// SwapTo starts a swap on request and returns a message about it. The host removes meanwhile what a previous swap has
// started and the new one does not need. The request stays in force, also for the next hosts, until the config file's
// mode changes or another mode is requested. A dry run leaves no request behind.
func (set *Set) SwapTo(a admin.SwapAsk) (string, error) {
	mode := a.To
	if err := set.checkSwap(mode); err != nil {
		return "", err
	}
	return set.changeWant(func() (string, error) {
		if a.DryRun {
			return set.startDryRun(mode, a.Force)
		}
		f := set.state.Facts
		rests, serves, wanted := set.swap == nil, set.Mode() == mode, f.Wanted(set.fileMode) == mode
		if !rests || !wanted {
			set.dropped = byOther
		}
		set.dryRun = nil
		set.startable[mode] = true
		set.state.Facts = f.WithRequest(mode, set.fileMode, a.Force)
		if serves && rests && wanted {
			set.newBuild(mode, "pointsman mode swap")
		} else if serves {
			return mode + " serves, and is the wanted mode again; pointsman mode show shows a swap in progress", nil
		}
		return "the swap to " + mode + " begins", nil
	})
}

// changeWant changes the Want and writes that to disk before it returns. From then on `mode
// show` shows the swap. If the write fails, that is reported and the loop retries.
func (set *Set) changeWant(change func() (string, error)) (string, error) {
	set.mu.Lock()
	said, err := change()
	events := set.updateSwap(set.want(), time.Now())
	set.mu.Unlock()
	set.reportAll(events)
	_ = set.write(false)
	set.changes.notify()
	return said, err
}

// startDryRun starts a dry run. The caller holds the mutex.
func (set *Set) startDryRun(mode string, force bool) (string, error) {
	conflict := func(why, try string) (string, error) {
		return "", &admin.Error{Code: http.StatusConflict, What: "dry run of a swap to " + mode, Why: why, Try: try}
	}
	main := set.serving()
	i, _ := set.state.Instance(main.id)
	switch {
	case main.name == mode && set.Now().Plugins[mode].Address != "":
		return conflict("it serves, and something else runs its plugin, so that no second process can run beside it", "pointsman mode show")
	case !i.Served:
		return conflict(main.name+" does not serve, and the rules of "+mode+" may serve, and the dry run would write them", "pointsman status")
	case set.swap != nil && !set.swap.moved():
		return conflict("another swap is in progress: "+set.swap.change.String()+", "+set.swap.stage, "pointsman mode show")
	}
	set.nonce++
	set.dryRun = &plane.Want{Mode: mode, DryRun: true, Force: force, Number: dryRuns + set.nonce}
	if main.name == mode {
		set.dryRun.Build = fmt.Sprintf("%s-dry-run-%d", set.buildOf(mode), set.nonce)
	}
	return "the swap to " + mode + " begins", nil
}

// checkSwap returns an error if the mode has no plugin, or if it serves with a plugin that
// something else runs: a second process beside that is not possible.
func (set *Set) checkSwap(mode string) error {
	if !launch.ValidName(mode) {
		return &admin.Error{Code: http.StatusBadRequest, What: "swap to " + strconv.Quote(mode), Why: "not a valid name: want lower-case letters, digits and -", Try: "pointsman plugin list"}
	}
	if !set.available(mode) {
		return &admin.Error{Code: http.StatusNotFound, What: "swap to " + mode, Why: binaries.Missing(set.Now(), mode), Try: "pointsman plugin list"}
	}
	set.mu.Lock()
	defer set.mu.Unlock()
	rests := set.swap == nil && set.state.Facts.Wanted(set.fileMode) == mode
	if address := set.Now().Plugins[mode].Address; address != "" && set.Mode() == mode && rests {
		return &admin.Error{Code: http.StatusConflict, What: "swap to " + mode,
			Why: "it serves already, and it runs by itself at " + address + ": replace it there", Try: "pointsman plugin restart " + mode}
	}
	return nil
}

// Reset undoes a swap that has not passed its proof. Otherwise it swaps to the mode of the
// config file.
func (set *Set) Reset() (string, error) {
	var to string // the mode to swap to; empty if none
	said, err := set.changeWant(func() (string, error) {
		f, s := set.state.Facts, set.swap
		switch isUndone := s != nil && !s.moved() && (s.Same || s.To != f.Served); {
		case isUndone && s.Same:
			b, wanted := set.builds[s.To], set.want().Build
			if former := set.instance(func(i plane.Instance) bool { return i.Mode == s.To && i.Build != wanted }); former != nil {
				b.label = former.Build
			} else if to := set.instance(func(i plane.Instance) bool { return i.Mode == s.To }); to != nil {
				b.label = cmp.Or(to.Former, b.label)
			}
			set.builds[s.To] = b
		case isUndone:
			set.state.Facts = f.WithRequest(f.Served, set.fileMode, false)
		case f.Served == set.fileMode:
			set.state.Facts = f.WithRequest(set.fileMode, set.fileMode, false)
			return "the mode is " + set.fileMode + ", as in the config file", nil
		default:
			to = set.fileMode
			return "", nil
		}
		set.dropped, set.dryRun = byReset, nil
		return "the swap to " + s.To + " is undone", nil
	})
	if to != "" {
		return set.SwapTo(admin.SwapAsk{To: to})
	}
	return said, err
}
