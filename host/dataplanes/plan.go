// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/phrase"
	"github.com/pointsman/pointsman/host/swap"
	"github.com/pointsman/pointsman/sdk"
)

// This file is about what a change of mode would come to.

// Plan says what a swap would come to, and changes nothing.
func (m *Modes) Plan(ctx context.Context, to string) (admin.ModePlan, error) {
	if err := m.possible(to); err != nil {
		return admin.ModePlan{}, err
	}
	main := m.serving()
	p := admin.ModePlan{From: main.name, To: to, Lost: []string{}, Written: []string{}, Left: []string{}, Steps: swap.Steps(swap.Plan{From: main.name, To: to, Same: main.name == to})}
	if main.name == to {
		p.Written = append(p.Written, "only what differs from what is in the kernel")
		return p, nil
	}
	next := Describe(ctx, m.found(to), m.Now().Plugins[to].SHA256)
	ends, unserved := main.ends(ctx), []string(nil)
	if ends != "" {
		p.Lost = append(p.Lost, ends)
	}
	if next.Why != "" {
		p.Lost = append(p.Lost, "not known before it runs: "+next.Why)
	} else {
		unserved, p.Refused = m.unserved(next), m.unfit(ctx, to)
		p.Lost = append(append(p.Lost, m.lacks(next)...), unserved...)
	}
	if ends != "" || len(unserved) > 0 {
		p.Refused = append(p.Refused, "what would be lost is given up only if it is asked for with --force")
	}
	services, frontends := 0, 0
	for _, s := range m.Tracker.Services() {
		for _, port := range s.Ports {
			services++
			frontends += len(port.Service.Frontends)
		}
	}
	p.Written = append(p.Written, fmt.Sprintf("%s with %s", phrase.Count(services, "port"), phrase.Count(frontends, "frontend")))
	left, err := main.leftovers(ctx)
	if errors.Is(err, errNoAnswer) {
		left, err = []string{"what " + main.name + " has in the kernel; its binary names it by hand: cleanup --dry-run"}, nil
	}
	p.Left = append(p.Left, left...)
	return p, err
}

// lacks returns the limits of a plugin that the one that serves does not have.
func (m *Modes) lacks(next admin.Plugin) []string {
	var lost []string
	has := phrase.Plain(m.serving().status().Description.Limits)
	for _, limit := range next.Limits {
		if !slices.Contains(has, limit) {
			lost = append(lost, limit+": "+meaning(sdk.Limit(limit)))
		}
	}
	return lost
}

// unserved returns the Services that the one that serves can serve, and a plugin cannot.
func (m *Modes) unserved(next admin.Plugin) []string {
	var lost []string
	has := m.serving().status().Description.Features
	for _, s := range m.Tracker.Services() {
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

// askLimit is how long a plugin's binary may take to say what it can, or would do.
const askLimit = 20 * time.Second

// meaning says each limit in words.
func meaning(l sdk.Limit) string {
	switch l {
	case sdk.LimitNoDrop:
		return "callers that are to be dropped are refused instead, and know at once"
	case sdk.LimitNoClientAddress:
		return "endpoints see an address of the node, not the caller's"
	case sdk.LimitAffinityPerFrontend:
		return "a client entries to an endpoint on each frontend separately"
	case sdk.LimitOwnAddressesOnly:
		return "only frontends on addresses that this node has are served"
	case sdk.LimitDiesWithProcess:
		return "when its process ends, so do the connections through it"
	}
	return "see docs/writing-a-plugin.md"
}

// leftovers returns what the dataplane would clean up. Another process of its binary says it,
// so that it need not stop serving for that; of one that runs by itself there is no other.
func (p *dataplane) leftovers(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	plugin := p.process.plugin
	if plugin.Address == "" {
		return wouldRemove(ctx, plugin.Path, plugin.SHA256)
	}
	remote := p.remote()
	if remote == nil {
		return nil, fmt.Errorf("ask %s at %s what it would clean up: %w", p.name, plugin.Address, errNoProcess)
	}
	return remote.Cleanup(ctx, sdk.Leftovers{DryRun: true})
}

// ends returns what a change to another mode would end, or, of the one to come, what the change
// to it would, in its own words; empty: nothing.
func (p *dataplane) ends(ctx context.Context) string {
	remote := p.remote()
	if remote == nil {
		return ""
	}
	vitals, err := remote.Vitals(ctx)
	if err != nil {
		return "" // one that cannot say so must not keep the mode from being changed
	}
	return vitals.SwapImpact
}

// oneLine returns several errors in a row.
func oneLine(text string) string { return strings.ReplaceAll(text, "\n", "; ") }
