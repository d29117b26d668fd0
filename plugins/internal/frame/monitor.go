// SPDX-License-Identifier: Apache-2.0

package frame

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

const (
	probeEvery = 500 * time.Millisecond
	maxRetry   = 5 * time.Second // between two attempts to write what failed; the first comes at once

	hostTimeout = time.Minute // how long a process keeps the writer's lock without its host
)

// startMonitor starts the monitor. It detects and repairs changes by other programs, and counts
// connections while draining. The caller must not hold the semaphore when it calls stop, because
// the monitor may wait for it.
func (d *Dataplane[P]) startMonitor() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { d.monitor(ctx) })
	return func() {
		cancel()
		running.Wait()
	}
}

// monitor calls check at its interval, and when the session asks for it, until ctx ends.
func (d *Dataplane[P]) monitor(ctx context.Context) {
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
		work, done, err := d.semaphore.background(ctx)
		if err != nil {
			return
		}
		wake = d.session.Wake
		d.check(work)
		done()
	}
}

// check does the background work once: it probes and repairs each family. The next check retries
// what fails.
func (d *Dataplane[P]) check(ctx context.Context) {
	gone := time.Duration(0) // how long the host has been gone; zero: it is connected, or there is no lock to release
	if d.hostGone != nil && !d.session.Unlocked {
		gone = d.hostGone()
	}
	switch {
	case ctx.Err() != nil || d.phase == noSession:
		return
	case gone >= hostTimeout && d.isWriter():
		d.yieldWithoutHost("the host has been gone for a minute")
		return
	case d.role == 0 && d.shown == 0:
		d.readShown(ctx)
		return
	case !d.isWriter() || d.role == 0:
		return
	}
	d.countFlows()
	if d.phase != updated {
		return // the desired state is unknown
	}
	d.forgetEarly()
	for _, f := range d.families {
		found := d.probe(ctx, f)
		if ctx.Err() != nil {
			return
		}
		if !found.Unsure {
			f.lost = found.Why
		}
		d.tellLost()
		if gone > 0 && found.Lost != 0 && !found.Unsure { // perhaps kube-proxy, which an operator has started again
			d.yieldWithoutHost("the host is gone, and another program has changed what this process wrote: " + found.Why)
			return
		}
		steps, err := f.Masquerade().Mend(ctx)
		d.tellRepair(ctx, f, "the chains that all dataplanes share were changed", steps, err)
		d.repair(ctx, f, found)
	}
	d.checkSettings()
}

// tellLost reports what the last probes found removed or changed.
func (d *Dataplane[P]) tellLost() {
	var lost []string
	for _, f := range d.families {
		if f.lost != "" {
			lost = append(lost, f.label()+": "+f.lost)
		}
	}
	d.status.change(func(r *sdk.Report) { r.Lost = strings.Join(lost, "; ") })
}

// probe probes f. If the state of the kernel is unknown, everything counts as lost, at growing
// intervals.
func (d *Dataplane[P]) probe(ctx context.Context, f *family[P]) Finding {
	if f.known {
		f.retry, f.retryAt = 0, time.Time{}
		return f.Probe(ctx)
	}
	if time.Now().Before(f.retryAt) {
		return Finding{Unsure: true}
	}
	f.retry = min(max(2*f.retry, probeEvery), maxRetry)
	f.retryAt = time.Now().Add(f.retry)
	return Finding{Lost: All, Why: "the result of the last write is unknown", Unsure: true}
}

// repair writes what a finding requires.
func (d *Dataplane[P]) repair(ctx context.Context, f *family[P], found Finding) {
	switch {
	case found.Lost != 0:
		d.status.step()
		known := f.known
		steps, err := d.restore(ctx, f, found)
		if !known && err == nil { // a failed write is completed; no other program was involved
			d.log.Info("completed a failed write", "family", f.label(), "steps", len(steps))
			d.publish()
			return
		}
		d.tellRepair(ctx, f, found.Why, steps, err)
	case found.Moved, found.Due:
		if err := d.writeDue(ctx, f, found); err != nil && ctx.Err() == nil {
			d.warn("cannot write a due change", f, "", err) // the next check retries
		}
		d.publish()
	}
}

// restore reads the parts that may be lost, and writes what differs. If the kernel refuses Services,
// it writes all others, and the state counts as unknown, so that the next check tries again.
func (d *Dataplane[P]) restore(ctx context.Context, f *family[P], found Finding) ([]string, error) {
	if !f.known {
		found.Lost = All
	}
	if _, err := d.adopt(ctx, f, found.Lost); err != nil {
		f.known = false
		return nil, err
	}
	if found.Moved {
		if err := d.renderAll(f); err != nil {
			return nil, err
		}
	}
	plan, failed, err := d.apply(ctx, f)
	if plan == nil {
		return nil, err
	}
	steps, wanted := plan.Steps(), make(map[sdk.Name]P)
	var why error
	for err == nil && len(failed) > 0 { // without the refused Services, the next plan writes all that is left
		served := make(map[sdk.Name]P, len(failed))
		for _, b := range failed {
			if _, again := wanted[b.Name]; again {
				err = b.Err
				break
			}
			wanted[b.Name], served[b.Name], why = f.Desired()[b.Name], f.Installed()[b.Name], b.Err
		}
		if err == nil {
			f.SetDesired(served)
			_, failed, err = d.apply(ctx, f)
		}
	}
	if len(wanted) > 0 {
		f.SetDesired(wanted)
		f.known, err = false, cmp.Or(err, why)
	}
	return steps, err
}

// writeDue writes what is due although nothing was lost. UDP flows may have no serving endpoint
// afterwards.
func (d *Dataplane[P]) writeDue(ctx context.Context, f *family[P], found Finding) error {
	if found.Moved {
		if err := d.renderAll(f); err != nil {
			return err
		}
	}
	failed, err := d.write(ctx, f, nil)
	for _, b := range failed {
		d.failed[b.Name] = true
	}
	if err != nil || d.role != sdk.Active {
		return err
	}
	return d.forgetUDP(d.touched(sdk.Changes{Full: true}))
}

// renderAll reads the node again, and renders all Services of f.
func (d *Dataplane[P]) renderAll(f *family[P]) error {
	if err := f.Node(d.state.Node); err != nil {
		return err
	}
	pieces, _ := d.render(f, d.touched(sdk.Changes{Node: true})) // Sync has returned the Services that cannot be rendered
	f.SetDesired(pieces)
	return nil
}

// tellRepair logs and reports the result of a repair. It says nothing if a call interrupted the
// repair, because the call reads the kernel itself.
func (d *Dataplane[P]) tellRepair(ctx context.Context, f *family[P], why string, steps []string, err error) {
	switch {
	case ctx.Err() != nil:
	case err != nil:
		d.warn("cannot restore what another program removed", f, why, err)
	case len(steps) > 0:
		clear(d.warned)
		d.log.Warn("restored what another program removed", "family", f.label(), "why", why, "steps", len(steps), "first", steps[0])
		f.lost = why // until a probe finds no difference
		d.status.change(func(r *sdk.Report) {
			r.Repaired, r.Repair = r.Repaired+1, fmt.Sprintf("%s: %s; restored in %d steps, the first: %s", f.label(), why, len(steps), steps[0])
		})
		d.tellLost()
		d.publish()
	}
}

// warn logs the failure of something that each check attempts, once a minute while the error is
// the same.
func (d *Dataplane[P]) warn(what string, f *family[P], why string, err error) {
	text := strings.Join([]string{what, f.label(), why, err.Error()}, "; ")
	if at, before := d.warned[text]; before && time.Since(at) < time.Minute {
		return
	}
	if d.warned == nil || len(d.warned) > 100 {
		d.warned = make(map[string]time.Time)
	}
	d.warned[text] = time.Now()
	d.log.Warn(what, "family", f.label(), "why", why, "err", err)
}
