// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/pointsman/pointsman/host/phrase"
)

// partLimit is how long a part of the host has to end. One that waits for a file system
// which does not answer may not end at all, and must not keep the host from doing so.
const partLimit = 2 * time.Second

// parts are the goroutines that a host consists of. Each ends with its context.
type parts struct {
	log   hclog.Logger
	ended chan struct{} // has a token after a part ended

	mu      sync.Mutex // guards running
	running []string
}

func newParts(log hclog.Logger) *parts {
	return &parts{log: log, ended: make(chan struct{}, 1)}
}

// begin runs a part. One that fails is no reason to stop serving.
func (p *parts) begin(ctx context.Context, name string, run func(context.Context) error) {
	p.mu.Lock()
	p.running = append(p.running, name)
	p.mu.Unlock()
	go func() {
		if err := run(ctx); err != nil && ctx.Err() == nil {
			p.log.Error("a part of the host ended", "part", name, "err", err)
		}
		p.mu.Lock()
		p.running = slices.DeleteFunc(p.running, func(other string) bool { return other == name })
		p.mu.Unlock()
		select {
		case p.ended <- struct{}{}:
		default:
		}
	}()
}

func (p *parts) still() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.running)
}

// wait returns when all parts have ended; after ctx ended the one named main, which has
// time limits of its own, and the others if they do so within partLimit.
func (p *parts) wait(ctx context.Context, main string) {
	done, late := ctx.Done(), (<-chan time.Time)(nil)
	over := false
	for {
		left := p.still()
		if len(left) == 0 {
			return
		}
		if over && !slices.Contains(left, main) {
			p.log.Warn("the host ends without waiting for parts of it that do not", "parts", phrase.List(left))
			return
		}
		select {
		case <-p.ended:
		case <-done:
			done, late = nil, time.After(partLimit)
		case <-late:
			over = true
		}
	}
}
