// SPDX-License-Identifier: Apache-2.0

package frame

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/sdk"
)

const (
	probeEvery = 500 * time.Millisecond // whatever costs next to nothing
	retryMost  = 5 * time.Second        // between two tries to write what failed: the first comes at once

	hostTimeout = time.Minute // without its host a process is the writer no longer than that
)

// startMonitor begins to look after the kernel between calls: the monitor notices when
// another process removes what this process wrote, and restores it; and counts connections
// while draining. Its goroutine ends with end, which is called without the semaphore: the
// monitor may hold it.
func (d *Dataplane[P]) startMonitor() (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { d.watch(ctx) })
	return func() {
		cancel()
		running.Wait()
	}
}

// watch looks at each tick, and when the present session wakes it, until ctx ends.
func (d *Dataplane[P]) watch(ctx context.Context) {
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	var wake <-chan struct{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-wake:
		}
		work, done, err := d.semaphore.idle(ctx)
		if err != nil {
			return
		}
		wake = d.open.Wake
		d.look(work)
		done()
	}
}

// look looks at each family once, and repairs what others broke. What fails is tried again
// on a later round.
func (d *Dataplane[P]) look(ctx context.Context) {
	gone := d.gone()
	switch {
	case ctx.Err() != nil || d.phase == noSession:
		return
	case gone >= hostTimeout && d.writes():
		d.yieldWithoutHost("the host has been gone for a minute")
		return
	case d.role == 0 && d.shown == 0:
		d.readShown(ctx)
		return
	case !d.writes() || d.role == 0:
		return
	}
	d.count()
	d.foreign.look()
	work := false // another program is at work
	if d.phase != updated {
		return // it is not known what is desired
	}
	d.forgetEarly()
	for _, f := range d.families {
		found := d.examine(ctx, f)
		if ctx.Err() != nil {
			return
		}
		switch {
		case !found.Unsure:
			f.lost = found.Why
		case found.Lost == 0:
			work = true
		}
		d.tellLost()
		if gone > 0 && found.Lost != 0 && !found.Unsure { // it may be kube-proxy, on the way back to it
			d.yieldWithoutHost("the host is gone, and another program has changed what this process wrote: " + found.Why)
			return
		}
		steps, err := f.Masquerade().Mend(ctx)
		d.repaired(ctx, f, "it belongs to all dataplanes", steps, err)
		d.repair(ctx, f, found)
	}
	d.lookAtSettings()
	if !work {
		d.foreign.names = nil // what they wrote did no harm
	}
}

// gone returns how long the host has been gone; zero: it is connected, or there is nothing to yield.
func (d *Dataplane[P]) gone() time.Duration {
	if d.setup.Gone == nil || d.open.Unlocked {
		return 0
	}
	return d.setup.Gone()
}

// tellLost reports what the last look found removed or changed.
func (d *Dataplane[P]) tellLost() {
	var lost []string
	for _, f := range d.families {
		if f.lost != "" {
			lost = append(lost, f.served()+": "+f.lost)
		}
	}
	d.status.tell(func(r *sdk.Report) { r.Lost = strings.Join(lost, "; ") })
}

// examine probes f.
func (d *Dataplane[P]) examine(ctx context.Context, f *family[P]) Finding {
	if !f.adopted {
		if time.Now().Before(f.retryAt) {
			return Finding{Unsure: true}
		}
		f.retry = min(max(2*f.retry, probeEvery), retryMost)
		f.retryAt = time.Now().Add(f.retry)
		return Finding{Lost: All, Why: "what was written last may not be there", Unsure: true}
	}
	f.retry, f.retryAt = 0, time.Time{}
	return f.Probe(ctx)
}

// repair writes what a finding says is to be written.
func (d *Dataplane[P]) repair(ctx context.Context, f *family[P], found Finding) {
	switch {
	case found.Lost != 0:
		d.status.step()
		adopted := f.adopted
		steps, err := d.restore(ctx, f, found)
		if !adopted && err == nil {
			d.log.Info("wrote what could not be written before", "family", f.served(), "steps", len(steps))
			d.publish()
			return // no other program had a part in it
		}
		d.repaired(ctx, f, found.Why, steps, err)
	case found.Moved, found.Due:
		if err := d.catchUp(ctx, f, found); err != nil && ctx.Err() == nil {
			d.warn("cannot write what is due", f, "", err) // the family is read, and tried again
		}
		d.publish()
	}
}

// restore reads what may be lost, and writes what differs.
func (d *Dataplane[P]) restore(ctx context.Context, f *family[P], found Finding) ([]string, error) {
	if !f.adopted {
		found.Lost = All
	}
	if _, err := d.adopt(ctx, f, found.Lost); err != nil {
		f.adopted = false
		return nil, err
	}
	if found.Moved {
		if err := d.renew(f); err != nil {
			return nil, err
		}
	}
	plan, failed, err := d.apply(ctx, f)
	if plan == nil {
		return nil, err
	}
	if err == nil && len(failed) > 0 {
		f.adopted, err = false, failed[0].Err
	}
	return plan.Steps(), err
}

// catchUp writes what is due, though nothing was lost.
func (d *Dataplane[P]) catchUp(ctx context.Context, f *family[P], found Finding) error {
	if found.Moved {
		if err := d.renew(f); err != nil {
			return err
		}
	}
	failed, err := d.write(ctx, f, nil)
	if err != nil || !found.Stale || d.role != sdk.Active {
		return err
	}
	return d.forget(sdk.Changes{Full: true}, failed)
}

// renew has f look at the node again, and renders all its Services.
func (d *Dataplane[P]) renew(f *family[P]) error {
	if err := f.Node(d.state.Node); err != nil {
		return err
	}
	pieces, _ := d.render(f, d.touched(sdk.Changes{Node: true})) // what fails was named by the Sync that brought it
	f.Put(pieces)
	return nil
}

// A foreign finds out which other programs write. It listens for a while after a repair.
type foreign struct {
	writers *iptables.Writers
	until   time.Time
	names   []string // of those that have written since all was as it was written
}

// listenFor is how long is listened after a repair.
const listenFor = 10 * time.Minute

func (f *foreign) look() {
	if f.writers == nil {
		return
	}
	if f.names = f.writers.Others(f.names); time.Now().After(f.until) {
		f.close()
	}
}

// by names, for people, the programs that have written, and begins to listen.
func (f *foreign) by() string {
	f.look()
	f.until = time.Now().Add(listenFor)
	if f.writers == nil {
		f.writers, _ = iptables.ListenToWriters() // without it repairs name no program
	}
	if len(f.names) == 0 {
		return ""
	}
	return "; nf_tables was written to by " + strings.Join(f.names, " and ")
}

func (f *foreign) close() {
	if f.writers != nil {
		_ = f.writers.Close()
	}
	*f = foreign{}
}

// repaired tells what a repair came to.
func (d *Dataplane[P]) repaired(ctx context.Context, f *family[P], why string, steps []string, err error) {
	switch {
	case ctx.Err() != nil: // a call goes first, and begins with a reading
	case err != nil:
		d.warn("cannot restore what another program removed", f, why, err)
	case len(steps) > 0:
		clear(d.warned)
		by := d.foreign.by()
		d.log.Warn("restored what another program removed", "family", f.served(), "why", why, "steps", len(steps), "first", steps[0], "by", by)
		f.lost = why // until a look finds all as it was written
		d.status.tell(func(r *sdk.Report) {
			r.Repaired, r.Repair = r.Repaired+1, fmt.Sprintf("%s: %s; put back in %d steps, the first: %s%s", f.served(), why, len(steps), steps[0], by)
		})
		d.tellLost()
		d.publish()
	}
}

// warn logs why something failed that is tried at each look, once a minute while it fails alike.
func (d *Dataplane[P]) warn(what string, f *family[P], why string, err error) {
	text := strings.Join([]string{what, f.served(), why, err.Error()}, "; ")
	if at, before := d.warned[text]; before && time.Since(at) < time.Minute {
		return
	}
	if d.warned == nil || len(d.warned) > 100 {
		d.warned = make(map[string]time.Time)
	}
	d.warned[text] = time.Now()
	d.log.Warn(what, "family", f.served(), "why", why, "err", err)
}
