// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"context"
	"sync"
)

// A listed is a whole with Parts.List.
type listed struct {
	*whole
	mu     sync.Mutex // guards the fields below: Inspect runs concurrently with other calls
	active bool
	ready  []Served // what Active would serve
}

func (l *listed) Configure(ctx context.Context, setup Setup) (Description, error) {
	d, err := l.whole.Configure(ctx, setup)
	l.note(nil)
	return d, err
}

func (l *listed) Sync(ctx context.Context, u Update) (Result, error) {
	r, err := l.whole.Sync(ctx, u)
	if err == nil {
		l.note(r.Failed)
	}
	return r, err
}

func (l *listed) SetRole(ctx context.Context, role Role) error {
	err := l.whole.SetRole(ctx, role)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.active = l.role == Active
	return err
}

func (l *listed) Cleanup(ctx context.Context, left Leftovers) ([]string, error) {
	what, err := l.whole.Cleanup(ctx, left)
	if err == nil && !left.DryRun {
		l.note(nil)
	}
	return what, err
}

// note stores what the role Active would serve, without the failed Services.
func (l *listed) note(failed []Failure) {
	without := make(map[Name]bool)
	for _, f := range failed {
		without[f.Name] = true
	}
	var ready []Served
	for name, svc := range l.state.Services {
		if without[name] {
			continue
		}
		for _, f := range svc.Frontends {
			s := Served{Name: name, Frontend: f}
			for _, ep := range svc.Endpoints(f.Policy) {
				s.Endpoints = append(s.Endpoints, ep.Addr)
			}
			ready = append(ready, s)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.active, l.ready = l.role == Active, ready
}

func (l *listed) Inspect(ctx context.Context, each func(Served) error) error {
	l.mu.Lock()
	active, list := l.active, l.ready
	l.mu.Unlock()
	if active {
		var err error
		if list, err = l.parts.List(ctx); err != nil {
			return err
		}
	}
	for _, s := range list {
		if err := each(s); err != nil {
			return err
		}
	}
	return nil
}
