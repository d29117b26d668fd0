// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/pointsman/pointsman/sdk/statefile"
)

// start starts the host, and waits until each Service answers.
func (d *demo) start(ctx context.Context) error {
	if !isGuest() { // where the story goes on
		d.screen.title()
		d.screen.step("1  Two Services, from ordinary manifests")
	}
	d.screen.say("$ pointsman %s", strings.Join(d.host.run, " "))
	began := time.Now()
	if err := d.host.start(); err != nil {
		return err
	}
	for _, svc := range services() {
		d.screen.say("%-6s %s/%s, %d endpoints, in %s", svc.name, d.network.at(svc.addr), svc.network, len(svc.endpoints), svc.manifest)
		var last error
		err := d.watch(ctx, limit, nil, func() bool {
			last = d.load.request(svc).err
			return last == nil
		})
		if err != nil {
			return fmt.Errorf("wait for %s to answer: %w", svc.name, errors.Join(err, last))
		}
	}
	d.screen.say("Both answer %s after the start. From here on requests are sent all the time.", short(time.Since(began)))
	return nil
}

// spread shows that every endpoint gets its share.
func (d *demo) spread(ctx context.Context) error {
	d.screen.step("2  Requests are spread over the endpoints")
	by, err := d.count(ctx, 5*time.Second)
	if err != nil {
		return err
	}
	for _, svc := range services() {
		if err := fair(svc, by[svc.name]); err != nil {
			return err
		}
	}
	return nil
}

// fair reports an endpoint that got less than half its share, if one did.
func fair(svc service, counts map[string]int) error {
	total := 0
	for _, n := range counts {
		total += n
	}
	for _, ep := range svc.endpoints {
		if n := counts[ep.name]; n == 0 || n < total/len(svc.endpoints)/2 {
			return fmt.Errorf("of %d requests to %s, %s got %d", total, svc.name, ep.name, n)
		}
	}
	return nil
}

// limit is for what must happen: long, for a machine may be busy, and a kernel a process
// itself.
const limit = 2 * time.Minute

// quiet is how long an endpoint must not be asked to count as out of use.
const quiet = 1500 * time.Millisecond

// edit removes the last endpoint of web, and waits until it gets no requests.
func (d *demo) edit(ctx context.Context) error {
	d.screen.step("3  An endpoint goes from the manifest while requests run")
	gone := web.endpoints[len(web.endpoints)-1]
	file := filepath.Join(d.manifests(), web.manifest)
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	rest, line, err := withoutLine(string(text), d.network.at(gone.addr).Addr().String())
	if err != nil {
		return fmt.Errorf("edit %s: %w", file, err)
	}
	d.screen.say("%s loses the line", file)
	d.screen.say("  %s", line)
	edited := time.Now()
	if err := statefile.Write(file, []byte(rest)); err != nil {
		return err
	}
	err = d.watch(ctx, limit, nil, func() bool { return time.Since(latest(edited, d.load.counts.last(gone.name))) > quiet })
	if err != nil {
		return fmt.Errorf("wait until %s is asked no more: %w", gone.name, err)
	}
	d.screen.say("%s got its last request %s after the edit. The others go on:", gone.name, short(latest(edited, d.load.counts.last(gone.name)).Sub(edited)))
	by, err := d.count(ctx, 3*time.Second)
	if err == nil && by[web.name][gone.name] > 0 {
		err = fmt.Errorf("%s was asked again after it was gone from the manifest", gone.name)
	}
	if err == nil {
		err = d.noneFailed()
	}
	return err
}

// kill kills the plugin, and waits until everything is served again.
func (d *demo) kill(ctx context.Context) error {
	d.screen.step("4  The plugin is killed, and the host starts it anew")
	pid, err := d.host.pluginProcess(ctx)
	if err != nil {
		return err
	}
	d.screen.say("$ kill -9 %d", pid)
	counts := d.load.counts
	killed := time.Now()
	counts.killing(killed)
	endProcess(pid)
	if err := d.watch(ctx, limit, nil, func() bool { return !alive(pid) }); err != nil {
		return fmt.Errorf("wait for process %d to end: %w", pid, err)
	}
	counts.gone(time.Now())
	var back time.Time
	err = d.watch(ctx, limit, nil, func() (ok bool) {
		back, ok = counts.back()
		return ok
	})
	if err != nil {
		return fmt.Errorf("wait to be served again: %w", err)
	}
	next, err := d.host.pluginProcess(ctx)
	if err != nil {
		return err
	}
	d.screen.say("Served again %s later, by process %d, which was told everything anew:", short(back.Sub(killed)), next)
	by, err := d.count(ctx, 3*time.Second)
	if err != nil {
		return err
	}
	if n := by[web.name][web.endpoints[len(web.endpoints)-1].name]; n > 0 {
		return fmt.Errorf("the new process asked %d times an endpoint that is gone", n)
	}
	s := counts.sum()
	d.screen.say("Connections in flight through it that were lost: %d. Requests turned away meanwhile: %d.", s.inFlight, s.refused)
	d.screen.say("(This plugin is a relay. What a plugin keeps in the kernel goes on forwarding without it.)")
	return d.noneFailed()
}

// status shows what a user would ask.
func (d *demo) status(ctx context.Context) error {
	d.screen.step("5  What the host says of all this")
	d.screen.say("$ pointsman status")
	out, err := d.host.ask(ctx, "status")
	if err != nil {
		return err
	}
	for line := range strings.Lines(out) {
		d.screen.say("  %s", strings.TrimRight(line, "\n"))
	}
	return nil
}

// last says what all requests came to, after everything has ended.
func (d *demo) last(err error) {
	s := d.load.counts.sum()
	if isGuest() {
		d.screen.say("(%d requests there, %d failed)", s.requests, len(s.failed))
		return
	}
	fmt.Fprintln(d.screen.out)
	if s.inFlight+s.refused > 0 {
		fmt.Fprintf(d.screen.out, "Beside these, the killed plugin cost %d requests in flight and %d that were turned away.\n", s.inFlight, s.refused)
	}
	if err == nil {
		fmt.Fprintf(d.screen.out, "Everything is stopped and removed, %s after the start.\n", short(time.Since(d.began)))
	}
	fmt.Fprintf(d.screen.out, "demo: %d requests, %d failed\n", s.requests, len(s.failed))
}

// count shows what answers for a while, and returns it.
func (d *demo) count(ctx context.Context, length time.Duration) (map[string]map[string]int, error) {
	before, until := d.load.counts.sum(), time.Now().Add(length)
	now := func() map[string]map[string]int { return d.load.counts.sum().minus(before) }
	picture := func() []string { return bars(now()) }
	if err := d.watch(ctx, length+time.Minute, picture, func() bool { return !time.Now().Before(until) }); err != nil {
		return nil, err
	}
	by := now()
	d.screen.keep(bars(by))
	return by, nil
}

// noneFailed says what failed so far that should not have.
func (d *demo) noneFailed() error {
	s := d.load.counts.sum()
	if len(s.failed) == 0 {
		return nil
	}
	a := s.failed[0]
	return fmt.Errorf("%d requests failed; the first was to %s, %s after it was sent: %w", len(s.failed), a.service, short(a.ended.Sub(a.began)), a.err)
}

// watch draws picture until done, at most for limit.
func (d *demo) watch(ctx context.Context, limit time.Duration, picture func() []string, done func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		if picture != nil {
			d.screen.show(picture())
		}
		select {
		case <-tick.C:
		case <-d.host.exited:
			return d.host.ended()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// short returns d as one would say it.
func short(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
