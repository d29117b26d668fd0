// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/phrase"
	"github.com/pointsman/pointsman/host/supervise"
	"github.com/pointsman/pointsman/host/swap"
	"github.com/pointsman/pointsman/sdk"
)

// Show is which dataplane serves, and what becomes of it.
func (set *Set) Show() admin.Mode {
	m := set.runner.Machine()
	set.mu.Lock()
	mode := admin.Mode{Mode: set.main.name, File: set.Now().Mode}
	if wanted := set.noted.wanted(mode.File); wanted != mode.File {
		mode.Asked = wanted
	}
	set.mu.Unlock()
	mode.Swap, mode.Last = set.underWay(m), swapped(m.Last)
	return mode
}

// UnderWay is the swap that goes on; nil: none does.
func (set *Set) UnderWay() *admin.Swap { return set.underWay(set.runner.Machine()) }

func (set *Set) underWay(m swap.Machine) *admin.Swap {
	if m.Stage == swap.Idle {
		return nil
	}
	s := &admin.Swap{From: m.Plan.From, To: m.Plan.To, Why: m.Plan.Why, Stage: m.Stage.String(), Since: m.Since, Began: m.Began, Undo: m.Undo}
	if m.Stage == swap.Draining {
		s.Until = m.Since.Add(m.Plan.Drain)
		if leaves := set.coming(); leaves != nil {
			s.Flows = leaves.supervisor.Status().Vitals.Flows
		}
	}
	return s
}

func swapped(o swap.Outcome) *admin.Swapped {
	if o.At.IsZero() {
		return nil
	}
	return &admin.Swapped{From: o.Plan.From, To: o.Plan.To, At: o.At, Seconds: o.Took.Seconds(), Error: oneLine(o.Err), Left: oneLine(o.Left), Stays: o.Stays}
}

// Recently is how long a swap that was undone, or a restart of the plugin, is worth a
// warning.
const Recently = 10 * time.Minute

// byReset is why a swap is undone that somebody does not want any more.
const byReset = "pointsman mode reset"

// LastSwap is the last swap, if it still is one to speak of: one that was undone
// and is still wanted, or was not long ago. Who asked for that need not be told of it.
// That a mode has another binary since is not to speak of, while a change of mode that was
// undone is.
func (set *Set) LastSwap() *admin.Swapped {
	newest := set.runner.Machine().Last
	if newest.Plan.Same && newest.OK() {
		if undone := set.toSpeakOf(set.lastUndone()); undone != nil {
			return undone
		}
	}
	return set.toSpeakOf(newest)
}

func (set *Set) toSpeakOf(o swap.Outcome) *admin.Swapped {
	last := swapped(o)
	if last != nil && last.Error == byReset && last.Left == "" {
		return nil
	}
	if last == nil || last.Error == "" || time.Since(last.At) < Recently {
		return last
	}
	set.mu.Lock()
	defer set.mu.Unlock()
	if set.main.name == set.noted.wanted(set.Now().Mode) {
		return nil
	}
	return last
}

// remember notes how a change of mode ended.
func (set *Set) remember(o swap.Outcome) {
	if o.Plan.Same {
		return
	}
	set.mu.Lock()
	defer set.mu.Unlock()
	set.undone = swap.Outcome{}
	if o.Err != "" {
		set.undone = o
	}
}

func (set *Set) lastUndone() swap.Outcome {
	set.mu.Lock()
	defer set.mu.Unlock()
	return set.undone
}

// SwapTo begins a swap that someone asks for. It holds, also for hosts to come,
// until the file's mode changes or someone asks for another.
func (set *Set) SwapTo(mode string, force bool) error {
	if err := set.possible(mode); err != nil {
		return err
	}
	set.cleared()
	if err := set.ask(mode, "pointsman mode swap", force); err != nil {
		return &admin.Error{Code: http.StatusConflict, What: "swap to " + mode, Why: err.Error(), Try: "pointsman mode show"}
	}
	set.prefer(mode)
	return nil
}

// cleared waits for the end of a swap that has nothing to do any more but to clear away,
// unless that takes long.
func (set *Set) cleared() {
	for deadline := time.Now().Add(clearedSoon); set.runner.Machine().Stage == swap.Clearing && time.Now().Before(deadline); {
		time.Sleep(glance)
	}
}

const clearedSoon = 10 * time.Second

// prefer notes what was asked for.
func (set *Set) prefer(mode string) {
	set.mu.Lock()
	set.owed, set.wanted = "", ""
	set.mu.Unlock()
	set.write(func(f *inForce) {
		f.Asked, f.File = mode, set.Now().Mode
		if mode == f.File {
			f.Asked, f.File = "", ""
		}
	})
}

// possible refuses a swap to a mode that nobody has, or to the very process that serves:
// beside a plugin that runs by itself there is no second one.
func (set *Set) possible(mode string) error {
	if !supervise.ValidName(mode) {
		return &admin.Error{Code: http.StatusBadRequest, What: "swap to " + strconv.Quote(mode), Why: "no dataplane can be called so: want lower-case letters, digits and -", Try: "pointsman plugin list"}
	}
	if !set.there(mode) {
		return &admin.Error{Code: http.StatusNotFound, What: "swap to " + mode, Why: missing(set.Now(), mode), Try: "pointsman plugin list"}
	}
	if address := set.Now().Plugins[mode].Address; address != "" && set.serving().name == mode {
		return &admin.Error{Code: http.StatusConflict, What: "swap to " + mode,
			Why: "it serves, and runs by itself at " + address + ": who keeps it running puts another in its place", Try: "pointsman plugin restart " + mode}
	}
	return nil
}

// Reset undoes a swap that has not passed its canary, else it goes back to the
// file's mode.
func (set *Set) Reset() (string, error) {
	if m := set.runner.Machine(); m.Stage != swap.Idle && m.Stage < swap.Draining {
		set.runner.Reset(byReset)
		set.prefer(set.serving().name) // or the next host would begin it again
		return "the swap to " + m.Plan.To + " is undone", nil
	}
	mode := set.Now().Mode
	if set.serving().name == mode {
		set.prefer(mode)
		return "the mode is " + mode + ", as in the config file", nil
	}
	return "the swap to " + mode + " begins", set.SwapTo(mode, false)
}

// Plan says what a swap would come to, and changes nothing.
func (set *Set) Plan(ctx context.Context, to string) (admin.ModePlan, error) {
	if err := set.possible(to); err != nil {
		return admin.ModePlan{}, err
	}
	main := set.serving()
	p := admin.ModePlan{From: main.name, To: to, Lost: []string{}, Written: []string{}, Left: []string{}, Steps: swap.Steps(swap.Plan{From: main.name, To: to, Same: main.name == to})}
	if main.name == to {
		p.Written = append(p.Written, "only what differs from what is in the kernel")
		return p, nil
	}
	next := Describe(ctx, set.found(to), set.Now().Plugins[to].SHA256)
	ends, unserved := main.ends(ctx), []string(nil)
	if ends != "" {
		p.Lost = append(p.Lost, ends)
	}
	if next.Why != "" {
		p.Lost = append(p.Lost, "nobody can say before it runs: "+next.Why)
	} else {
		unserved, p.Refused = set.unserved(next), set.unfit(ctx, to)
		p.Lost = append(append(p.Lost, set.lacks(next)...), unserved...)
	}
	if ends != "" || len(unserved) > 0 {
		p.Refused = append(p.Refused, "what would be lost is given up only if it is asked for with --force")
	}
	services, frontends := 0, 0
	for _, s := range set.Tracker.Services() {
		for _, port := range s.Ports {
			services++
			frontends += len(port.Service.Frontends)
		}
	}
	p.Written = append(p.Written, fmt.Sprintf("%s with %s", phrase.Count(services, "port"), phrase.Count(frontends, "frontend")))
	left, err := main.leftovers(ctx)
	p.Left = append(p.Left, left...)
	return p, err
}

// found is the binary of a mode. One that runs by itself may have none here.
func (set *Set) found(mode string) supervise.Found {
	for _, f := range Discover(set.Now()) {
		if f.Name == mode {
			return f
		}
	}
	return supervise.Found{Name: mode, Err: fmt.Errorf("%s runs by itself, and its binary is not here", mode)}
}

// lacks are the limits of a plugin that the one that serves does not have.
func (set *Set) lacks(next admin.Plugin) []string {
	var lost []string
	has := phrase.Plain(set.serving().supervisor.Status().Description.Limits)
	for _, limit := range next.Limits {
		if !slices.Contains(has, limit) {
			lost = append(lost, limit+": "+meaning(sdk.Limit(limit)))
		}
	}
	return lost
}

// unserved are the Services that the one that serves can serve, and a plugin cannot.
func (set *Set) unserved(next admin.Plugin) []string {
	var lost []string
	has := set.serving().supervisor.Status().Description.Features
	for _, s := range set.Tracker.Services() {
		for _, port := range s.Ports {
			for _, need := range port.Service.Needs() {
				if slices.Contains(has, need) && !slices.Contains(next.Features, string(need)) {
					lost = append(lost, fmt.Sprintf("%s: %s does not serve %s", port.Service.Name, next.Name, need))
				}
			}
		}
	}
	return lost
}

// unfit is why this node cannot run a mode's plugin, by the plugin's own word; none: it can,
// or it is not for us to ask.
func (set *Set) unfit(ctx context.Context, mode string) []string {
	s := set.Now().Plugins[mode]
	if s.Address != "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	words := []string{"check"}
	if len(s.Options) > 0 {
		words = append(words, "--options", string(s.Options))
	}
	_, err := verb(ctx, set.found(mode).Path, s.SHA256, words...)
	if err == nil {
		return nil
	}
	_, why, said := strings.Cut(err.Error(), "cannot run it: ")
	if !said {
		why = err.Error()
	}
	return []string{oneLine(why)}
}

// meaning says each limit in words.
func meaning(l sdk.Limit) string {
	switch l {
	case sdk.LimitNoDrop:
		return "callers who are to be dropped are refused instead, and know at once"
	case sdk.LimitNoClientAddress:
		return "endpoints see an address of the node, not the caller's"
	case sdk.LimitAffinityPerFrontend:
		return "a client sticks to an endpoint on each frontend separately"
	case sdk.LimitOwnAddressesOnly:
		return "only frontends on addresses that this node has are served"
	case sdk.LimitDiesWithProcess:
		return "when its process ends, so do the connections through it"
	}
	return "see docs/writing-a-plugin.md"
}

// leftovers are what the dataplane would clean up. Another process of its binary says it,
// so that it need not stop serving for that; of one that runs by itself there is no other.
func (p *dataplane) leftovers(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	if p.plugin.Address != "" {
		remote := p.process()
		if remote == nil {
			return nil, fmt.Errorf("ask %s at %s what it would clean up: %w", p.name, p.plugin.Address, errNoProcess)
		}
		return remote.Cleanup(ctx, sdk.Leftovers{DryRun: true})
	}
	return cleanupNames(ctx, p.plugin.Path, p.plugin.SHA256)
}

// oneLine is several errors in a row.
func oneLine(text string) string { return strings.ReplaceAll(text, "\n", "; ") }
