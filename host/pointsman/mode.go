// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/supervise"
	"github.com/pointsman/pointsman/host/swap"
	"github.com/pointsman/pointsman/sdk"
)

// show is which dataplane serves, and what becomes of it.
func (y *yard) show() admin.Mode {
	m := y.runner.Machine()
	y.mu.Lock()
	mode := admin.Mode{Mode: y.main.name, File: y.follower.Host().Mode}
	if wanted := y.noted.wanted(mode.File); wanted != mode.File {
		mode.Asked = wanted
	}
	y.mu.Unlock()
	mode.Swap, mode.Last = y.underWay(m), swapped(m.Last)
	return mode
}

func (y *yard) underWay(m swap.Machine) *admin.Swap {
	if m.Stage == swap.Idle {
		return nil
	}
	s := &admin.Swap{From: m.Plan.From, To: m.Plan.To, Why: m.Plan.Why, Stage: m.Stage.String(), Since: m.Since, Began: m.Began, Undo: m.Undo}
	if m.Stage == swap.Draining {
		s.Until = m.Since.Add(m.Plan.Drain)
		if leaves := y.coming(); leaves != nil {
			s.Flows = leaves.supervisor.Status().Vitals.Flows
		}
	}
	return s
}

func swapped(o swap.Outcome) *admin.Swapped {
	if o.At.IsZero() {
		return nil
	}
	return &admin.Swapped{From: o.Plan.From, To: o.Plan.To, At: o.At, Seconds: o.Took.Seconds(), Error: oneLine(o.Err), Left: oneLine(o.Left)}
}

// worthAWord is the last swap, if it still is one to speak of: one that was undone
// and is still wanted, or was not long ago.
func (y *yard) worthAWord() *admin.Swapped {
	last := swapped(y.runner.Machine().Last)
	if last == nil || last.Error == "" || time.Since(last.At) < recently {
		return last
	}
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.main.name == y.noted.wanted(y.follower.Host().Mode) {
		return nil
	}
	return last
}

// swapTo begins a swap that someone asks for. It holds, also for hosts to come,
// until the file's mode changes or someone asks for another.
func (y *yard) swapTo(mode string, force bool) error {
	if err := y.known(mode); err != nil {
		return err
	}
	if err := y.ask(mode, "pointsman mode swap", force); err != nil {
		return &admin.Error{Code: http.StatusConflict, What: "swap to " + mode, Why: err.Error(), Try: "pointsman mode show"}
	}
	y.prefer(mode)
	return nil
}

// prefer notes what was asked for.
func (y *yard) prefer(mode string) {
	y.mu.Lock()
	y.noted.Asked, y.noted.File = mode, y.follower.Host().Mode
	if mode == y.noted.File {
		y.noted.Asked, y.noted.File = "", ""
	}
	next := y.noted
	y.mu.Unlock()
	if err := next.write(y.settings.StateDir); err != nil {
		y.Failed(swap.Record, err)
	}
}

func (y *yard) known(mode string) error {
	if y.there(mode) {
		return nil
	}
	return &admin.Error{Code: http.StatusNotFound, What: "swap to " + mode, Why: missing(y.follower.Host(), mode), Try: "pointsman plugin list"}
}

// reset undoes a swap that has not passed its canary, else it goes back to the
// file's mode.
func (y *yard) reset() (string, error) {
	if m := y.runner.Machine(); m.Stage != swap.Idle && m.Stage < swap.Draining {
		y.runner.Reset("pointsman mode reset")
		return "the swap to " + m.Plan.To + " is undone", nil
	}
	mode := y.follower.Host().Mode
	if y.serving().name == mode {
		y.prefer(mode)
		return "the mode is " + mode + ", as in the config file", nil
	}
	return "the swap to " + mode + " begins", y.swapTo(mode, false)
}

// plan says what a swap would come to, and changes nothing.
func (y *yard) plan(ctx context.Context, to string) (admin.ModePlan, error) {
	if err := y.known(to); err != nil {
		return admin.ModePlan{}, err
	}
	main := y.serving()
	p := admin.ModePlan{From: main.name, To: to, Lost: []string{}, Written: []string{}, Left: []string{}, Steps: swap.Steps(swap.Plan{From: main.name, To: to, Same: main.name == to})}
	if main.name == to {
		p.Written = append(p.Written, "only what differs from what is in the kernel")
		return p, nil
	}
	next := described(ctx, y.found(to), y.follower.Host().Plugins[to].SHA256)
	p.Lost = append(p.Lost, y.lacks(next)...)
	services, frontends := 0, 0
	for _, s := range y.tracker.Services() {
		for _, port := range s.Ports {
			services++
			frontends += len(port.Service.Frontends)
		}
	}
	p.Written = append(p.Written, fmt.Sprintf("%s with %s", count(services, "port"), count(frontends, "frontend")))
	left, err := leftovers(ctx, main.supervisor.Status().Path)
	p.Left = append(p.Left, left...)
	return p, err
}

func (y *yard) found(mode string) supervise.Found {
	for _, f := range discover(y.follower.Host()) {
		if f.Name == mode {
			return f
		}
	}
	return supervise.Found{Name: mode}
}

// lacks are the differences between a plugin and the one that serves.
func (y *yard) lacks(next admin.Plugin) []string {
	var lost []string
	has := plainTexts(y.serving().supervisor.Status().Description.Limits)
	for _, limit := range next.Limits {
		if !slices.Contains(has, limit) {
			lost = append(lost, limit+": "+meaning(sdk.Limit(limit)))
		}
	}
	for _, s := range y.tracker.Services() {
		for _, port := range s.Ports {
			for _, need := range port.Service.Needs() {
				if !slices.Contains(next.Features, string(need)) {
					lost = append(lost, fmt.Sprintf("%s: %s does not serve %s", port.Service.Name, next.Name, need))
				}
			}
		}
	}
	return lost
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

// leftovers are what a plugin's binary would clean up.
func leftovers(ctx context.Context, path string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, path, "cleanup", "--dry-run")
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &stdout, &stderr, time.Second
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s cleanup --dry-run: %w: %s", path, err, strings.TrimSpace(stderr.String()))
	}
	var left []string
	for line := range strings.Lines(stdout.String()) {
		if what, ok := strings.CutPrefix(strings.TrimSpace(line), "would remove "); ok {
			left = append(left, what)
		}
	}
	return left, nil
}

// oneLine is several errors in a row.
func oneLine(text string) string { return strings.ReplaceAll(text, "\n", "; ") }
