// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"context"
	"slices"
	"sync"
)

// A group is the dataplanes that a host runs: the one that serves, and those that come and
// go beside it.
type group struct {
	changes notifier // of a dataplane, of a swap, or of the intent

	mu      sync.Mutex   // guards what follows; no call into intent is made with it
	main    *dataplane   // the one that serves
	members []*dataplane // all that run
	life    context.Context
	leaves  bool // the processes are to outlive the host
}

// run starts the members, and says for how long those that come later are to run.
func (g *group) run(ctx context.Context) {
	g.mu.Lock()
	g.life = ctx
	begun := slices.Clone(g.members)
	g.mu.Unlock()
	for _, p := range begun {
		p.start(ctx)
	}
}

// join adds p to a group that runs, and starts it.
func (g *group) join(p *dataplane) {
	g.add(p)
	g.mu.Lock()
	life := g.life
	g.mu.Unlock()
	p.start(life)
}

// retire stops p, and takes it out of the group.
func (g *group) retire(p *dataplane) {
	p.process.stop()
	g.drop(func(d *dataplane) bool { return d == p })
}

// drop takes those out of the group that over says it of.
func (g *group) drop(over func(*dataplane) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.members = slices.DeleteFunc(g.members, over)
}

// lead makes p the one that serves.
func (g *group) lead(p *dataplane) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.main = p
}

// serving returns the dataplane that serves.
func (g *group) serving() *dataplane {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.main
}

func (g *group) all() []*dataplane {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.members)
}

// besides returns the dataplane besides the one that serves; nil: there is none.
func (g *group) besides() *dataplane {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range g.members {
		if p != g.main {
			return p
		}
	}
	return nil
}

// named returns the dataplane of that mode that runs; nil: none does.
func (g *group) named(mode string) *dataplane {
	if main := g.serving(); main.name == mode {
		return main
	}
	for _, p := range g.all() {
		if p.name == mode {
			return p
		}
	}
	return nil
}

// add adds p. The first one is the one that serves.
func (g *group) add(p *dataplane) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.main == nil {
		g.main = p
	}
	g.members = append(g.members, p)
	if g.leaves {
		p.process.supervisor.Leave()
	}
}

// Leave has the processes outlive the host. It may be called before Begin, too.
func (g *group) Leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.leaves = true
	for _, p := range g.members {
		p.process.supervisor.Leave()
	}
}
