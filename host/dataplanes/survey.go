// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/pointsman/pointsman/host/phrase"
)

// This file is about rules in the kernel that go on serving while the mode in use does not:
// no dataplane in session keeps them up to date.

// A survey is what was found of such rules.
type survey struct {
	found []string
	next  time.Time // when the next one is due
}

const surveyEach = time.Minute

// surveys looks again and again until ctx ends.
func (set *Set) surveys(ctx context.Context) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			set.look(ctx, now)
		}
	}
}

// look asks each plugin's binary what it would clean up, if that is due. While the mode in
// use serves there is nothing to look for.
func (set *Set) look(ctx context.Context, now time.Time) {
	main := set.serving()
	set.mu.Lock()
	due := !now.Before(set.survey.next)
	set.mu.Unlock()
	if main.serves() {
		set.surveyed(survey{})
		return
	}
	if due && !main.status().Coming() {
		set.surveyed(survey{set.leftServing(ctx), now.Add(surveyEach)})
	}
}

func (set *Set) surveyed(s survey) {
	set.mu.Lock()
	defer set.mu.Unlock()
	set.survey = s
}

// leftServing names what each mode's plugin would clean up.
func (set *Set) leftServing(ctx context.Context) []string {
	var all []string
	for _, f := range Discover(set.Now()) {
		if f.Err != nil {
			continue
		}
		limited, cancel := context.WithTimeout(ctx, askLimit)
		left, err := wouldRemove(limited, f.Path, set.Now().Plugins[f.Name].SHA256, "--kube-proxy")
		cancel()
		if err == nil && len(left) > 0 {
			all = append(all, fmt.Sprintf("%s: %s%s", f.Name, left[0], phrase.AndMore(len(left)-1)))
		}
	}
	return all
}

// Unattended names, by mode, what the kernel has and goes on serving by while the mode in
// use does not serve: nothing updates it.
func (set *Set) Unattended() []string {
	set.mu.Lock()
	defer set.mu.Unlock()
	return slices.Clone(set.survey.found)
}
