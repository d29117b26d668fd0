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
		err := d.watch(ctx, func() bool {
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
		if err := fair(svc, by); err != nil {
			return err
		}
	}
	return nil
}

// fair reports an endpoint that got less than half its share of a Service's requests, if one did.
func fair(svc service, counts map[string]int) error {
	total := 0
	for _, ep := range svc.endpoints {
		total += counts[ep.name]
	}
	for _, ep := range svc.endpoints {
		if n := counts[ep.name]; n == 0 || n < total/len(svc.endpoints)/2 {
			return fmt.Errorf("of %d requests to %s, %s got %d", total, svc.name, ep.name, n)
		}
	}
	return nil
}

// limit is for what must happen: long, for a machine may be busy, and a kernel a process
// itself: there a change of mode takes most of a minute, and may be undone more than once.
const limit = 4 * time.Minute

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
	asked := func() time.Duration { return max(0, d.load.last(gone.name).Sub(edited)) }
	if err := d.watch(ctx, func() bool { return time.Since(edited)-asked() > quiet }); err != nil {
		return fmt.Errorf("wait until %s is asked no more: %w", gone.name, err)
	}
	d.screen.say("%s got its last request %s after the edit. The others go on:", gone.name, short(asked()))
	by, err := d.count(ctx, 3*time.Second)
	if err == nil && by[gone.name] > 0 {
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
	killed := time.Now()
	d.load.killing(killed)
	endProcess(pid)
	if err := d.watch(ctx, func() bool { return !alive(pid) }); err != nil {
		return fmt.Errorf("wait for process %d to end: %w", pid, err)
	}
	d.load.gone(time.Now())
	var back time.Time
	err = d.watch(ctx, func() (ok bool) {
		back, ok = d.load.back()
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
	if n := by[web.endpoints[len(web.endpoints)-1].name]; n > 0 {
		return fmt.Errorf("the new process asked %d times an endpoint that is gone", n)
	}
	s := d.load.since(0)
	d.screen.say("Connections in flight through it that were lost: %d. Requests turned away meanwhile: %d.", s.inFlight, s.refused)
	d.screen.say("(This plugin is a relay. What a plugin keeps in the kernel goes on forwarding without it.)")
	return d.noneFailed()
}

// status shows what a user would ask.
func (d *demo) status(ctx context.Context) error {
	d.screen.step("5  What the host says of all this")
	d.screen.say("$ pointsman status")
	out, err := d.host.ask(ctx, answering, "status")
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
	s := d.load.since(0)
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
func (d *demo) count(ctx context.Context, length time.Duration) (map[string]int, error) {
	began, then := time.Now(), d.load.now()
	err := d.watch(ctx, func() bool {
		d.screen.show(bars(d.load.since(then).by))
		return time.Since(began) >= length
	})
	if err != nil {
		return nil, err
	}
	by := d.load.since(then).by
	d.screen.keep(bars(by))
	return by, nil
}

// noneFailed says what failed so far that should not have.
func (d *demo) noneFailed() error {
	failed := d.load.since(0).failed
	if len(failed) == 0 {
		return nil
	}
	a := failed[0]
	return fmt.Errorf("%d requests failed; the first was to %s, %s after it was sent: %w",
		len(failed), a.service, short(a.ended.Sub(a.began)), a.err)
}

// watch asks again and again, until done or the host ends, at most for limit.
func (d *demo) watch(ctx context.Context, done func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-d.host.exited:
			return fmt.Errorf("the host ended: %s", d.host.cmd.ProcessState)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// short returns d as one would say it.
func short(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
