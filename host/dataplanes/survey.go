// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/pointsman/pointsman/host/phrase"
)

// A survey looks for rules in the kernel that go on serving while the mode in use does not:
// no dataplane in session keeps them up to date.
type survey struct {
	plugins installed
	running *group

	mu    sync.Mutex // guards what follows
	found []string
	next  time.Time // when to look again
}

const surveyEach = time.Minute

// run looks again and again until ctx ends.
func (s *survey) run(ctx context.Context) {
	every(ctx, time.Second, func(now time.Time) { s.look(ctx, now) })
}

// look asks each plugin's binary what it would clean up, if that is due. While the mode in
// use serves there is nothing to look for.
func (s *survey) look(ctx context.Context, now time.Time) {
	main := s.running.serving()
	if main.serves() {
		s.note(nil, time.Time{})
	} else if s.due(now) && !main.status().Coming() {
		s.note(s.plugins.leftServing(ctx), now.Add(surveyEach))
	}
}

func (s *survey) due(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !now.Before(s.next)
}

func (s *survey) note(found []string, next time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.found, s.next = found, next
}

// leftServing names what each mode's plugin would clean up.
func (in installed) leftServing(ctx context.Context) []string {
	var all []string
	for _, f := range Discover(in.Now()) {
		if f.Err != nil {
			continue
		}
		limited, cancel := context.WithTimeout(ctx, askLimit)
		left, err := wouldRemove(limited, f.Path, in.Now().Plugins[f.Name].SHA256, "--kube-proxy")
		cancel()
		if err == nil && len(left) > 0 {
			all = append(all, fmt.Sprintf("%s: %s%s", f.Name, left[0], phrase.AndMore(len(left)-1)))
		}
	}
	return all
}

// Unattended names, by mode, what the kernel has and goes on serving by while the mode in
// use does not serve: nothing updates it.
func (s *survey) Unattended() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.found)
}
