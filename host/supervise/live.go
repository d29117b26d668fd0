// SPDX-License-Identifier: Apache-2.0

package supervise

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/pointsman/pointsman/host/launch"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/statefile"
	"github.com/pointsman/pointsman/sdk/wire"
)

// A live plugin is a process that is up, and what goes on beside it.
type live struct {
	remote      *launch.Plugin
	description sdk.Description
	foreign     bool               // something else keeps it running
	left        bool               // a former host left it serving
	binary      identity           // of a process that a former host left; zero: that of the file
	cancel      context.CancelFunc // ends what goes on beside it; nil: nothing does
	beside      sync.WaitGroup
}

// launch starts a process and configures it. What does not come up is gone when
// it returns.
func (p Plugin) launch(ctx context.Context) (*live, error) {
	if err := p.named(); err != nil {
		return nil, err
	}
	if err := statefile.MakeDir(p.StateDir); err != nil {
		return nil, fmt.Errorf("make the plugin's state directory: %w", err)
	}
	mark := p.mark()
	remote, err := launch.Launch(ctx, launch.Command{
		Path:        p.Path,
		SHA256:      p.SHA256,
		Env:         p.Env,
		SocketDir:   p.socketDir(),
		StateDir:    p.StateDir,
		OOMScoreAdj: p.OOMScoreAdj,
		Mark:        mark,
	})
	if err != nil {
		remainder(mark.Launch).end()
		return nil, err
	}
	return p.configure(ctx, remote)
}

// named reports why nothing may be called so, if so: the names lead to files.
func (p Plugin) named() error {
	if !ValidName(p.Name) || !ValidSlot(p.Slot) {
		return fmt.Errorf("%q is no dataplane's name: want lower-case letters, digits and -", p.Name+p.Slot)
	}
	return nil
}

// socketDir returns where the socket goes: to the system's directory for temporary files where
// nothing can be made in the one that is asked for, because it is full or read-only.
func (p Plugin) socketDir() string {
	if p.SocketDir == "" || statefile.MakeDir(p.SocketDir) != nil {
		return ""
	}
	probe, err := os.MkdirTemp(p.SocketDir, "plugin-dir")
	if err != nil {
		return ""
	}
	_ = os.Remove(probe)
	return p.SocketDir
}

// connect connects to a plugin that something else keeps running, and configures
// it. One with which that fails is left to itself.
func (p Plugin) connect(ctx context.Context) (*live, error) {
	target, err := wire.At(p.Address)
	if err != nil {
		return nil, err
	}
	v, err := p.join(ctx, launch.Handle{Target: target}, connectLimit)
	if err != nil {
		return nil, err
	}
	v.foreign = true
	return v, nil
}

// join connects to a process that runs already, and configures it. One with which that
// fails runs on: whether it is to end is for the caller to say.
func (p Plugin) join(ctx context.Context, h launch.Handle, limit time.Duration) (*live, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	remote, err := launch.Attach(ctx, h)
	if err != nil {
		return nil, err
	}
	v, err := p.begin(ctx, remote)
	if err != nil {
		_ = remote.Close() // err says more
		return nil, err
	}
	return v, nil
}

// connectLimit is for greeting and configuring a plugin at an address.
const connectLimit = 10 * time.Second

// attach connects to the process that a former host left running, which serves: it
// is nil where there is none, or none that answers. One that answers, and speaks
// nothing that this host does, is a wire.SkewError.
func (p Plugin) attach(ctx context.Context) (*live, error) {
	h, err := readHandle(p.StateDir, p.Slot)
	if err != nil {
		return nil, err
	}
	if !runs(h.Handle) {
		return nil, os.ErrProcessDone
	}
	if netns, err := launch.NetNS(); err != nil || h.NetNS != "" && h.NetNS != netns {
		return nil, fmt.Errorf("process %d is in the network namespace %s, and this host in %s", h.PID, h.NetNS, netns)
	}
	v, err := p.join(ctx, h.Handle, attachLimit)
	if err != nil {
		return nil, err
	}
	v.left, v.binary = true, h.Binary
	return v, nil
}

// attachLimit is for a process that a former host left. It may be hung.
const attachLimit = 3 * time.Second

// configure begins a session. A process with which that fails is gone afterwards.
func (p Plugin) configure(ctx context.Context, remote *launch.Plugin) (*live, error) {
	v, err := p.begin(ctx, remote)
	if err != nil {
		_ = remote.Stop(context.WithoutCancel(ctx)) // why it is stopped says more
		remainderOf(remote).end()
		return nil, &crashed{err, remote.Exit().Crash()}
	}
	return v, nil
}

// crashed is an error of a process that is gone, with what it said as it crashed, if it
// did.
type crashed struct {
	error
	said []string
}

func (c *crashed) Unwrap() error { return c.error }

func (p Plugin) begin(ctx context.Context, remote *launch.Plugin) (*live, error) {
	d, err := remote.Configure(ctx, sdk.Setup{Options: p.Options, StateDir: p.StateDir})
	if err == nil && d.Name != p.Name {
		err = fmt.Errorf("%s calls itself %q: its name must be %q", cmp.Or(p.Address, p.Path), d.Name, p.Name)
	}
	if err != nil {
		return nil, fmt.Errorf("configure: %w", err)
	}
	if p.Debug {
		remote.Debugged()
	}
	return &live{remote: remote, description: d}, nil
}

// startLoops starts the goroutines beside a process. They end with the process, or
// with stop or detach.
func (v *live) startLoops(ctx context.Context, s *Supervisor, process int) {
	ctx, v.cancel = context.WithCancel(ctx)
	about := func(kind EventKind, why string) {
		s.send(ctx, event{process: process, Event: Event{Kind: kind, Why: why}})
	}
	v.beside.Go(func() {
		select {
		case <-v.remote.Exited():
			about(Exited, v.remote.Exit().String())
		case <-ctx.Done():
		}
	})
	v.beside.Go(func() { v.beat(ctx, s, about) })
	v.beside.Go(func() { v.logs(ctx, s.hooks.Log) })
	v.beside.Go(func() { v.session(ctx, s.hooks.Session, about) })
}

// session runs the hook until the process is gone.
func (v *live) session(ctx context.Context, hook func(context.Context, Life) error, about func(EventKind, string)) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // ends with the process or the session
		select {
		case <-v.remote.Exited():
			cancel()
		case <-ctx.Done():
		}
	}()
	life := Life{Remote: v.remote.Remote, Warnings: v.remote.Warnings(), Description: v.description}
	switch err := hook(ctx, life); {
	case err == nil || ctx.Err() != nil:
	case errors.Is(err, wire.ErrFenced):
		about(Refuses, "another host has taken it over; pointsman plugin restart takes it back")
	default:
		about(Failed, err.Error())
	}
}

// beat asks each second how the plugin is doing.
func (v *live) beat(ctx context.Context, s *Supervisor, about func(EventKind, string)) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	var last heartbeat
	for {
		vitals, silence, err := v.ask(ctx)
		if ctx.Err() != nil {
			return
		}
		switch {
		case err != nil && (silence.excused() || exhausted(err)):
			about(Starved, err.Error())
		case err != nil:
			about(Missed, err.Error())
		default:
			var hangs string
			last, hangs = last.next(vitals, silence.took)
			s.show(func(st *Status) { st.Vitals = vitals })
			s.hooks.Beat(v.remote.Remote, vitals)
			if hangs != "" {
				about(Hung, hangs)
			} else {
				about(Beat, "")
			}
		}
		select {
		case <-ticker.C:
		case <-v.remote.Exited():
			return
		case <-ctx.Done():
			return
		}
	}
}

// ask asks once how the plugin is doing, and notes what the process did meanwhile: of one
// that the host did not start, which may be in another pid namespace, that is not known.
func (v *live) ask(ctx context.Context) (wire.Vitals, unanswered, error) {
	pid := v.remote.Hello().PID
	if v.foreign {
		pid = 0
	}
	ran, queued := launch.CPUTime(pid)
	asked := time.Now()
	vitals, err := v.remote.Vitals(ctx)
	took := time.Since(asked)
	if err == nil {
		return vitals, unanswered{took: took}, nil
	}
	ranNow, queuedNow := launch.CPUTime(pid)
	return vitals, unanswered{took, ranNow - ran, queuedNow - queued}, err
}

// logs passes the plugin's log on. A stream that breaks while the process lives
// is opened again.
func (v *live) logs(ctx context.Context, hook func(wire.LogLine)) {
	for ctx.Err() == nil {
		_ = v.remote.Logs(ctx, hook) // what ends it shows elsewhere: the process, or its beats
		select {
		case <-v.remote.Exited():
			return
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

// stop ends the process and what goes on beside it. What it has started may be left. One that
// something else keeps running is asked to end, and gets no signal.
func (v *live) stop() {
	if v.foreign {
		v.askToEnd()
		v.detach()
		return
	}
	_ = v.remote.Stop(context.Background()) // ErrStillThere: the kernel has it; nothing more can be done
	v.detach()
}

// drop is for a process that came up when it was no longer wanted. One that was left to
// serve is left again by a host that leaves its own.
func (s *Supervisor) drop(v *live) {
	if v.foreign || v.left && s.leaves() {
		v.detach()
		return
	}
	v.stop()
	remainderOf(v.remote).end()
}

// detach ends what goes on beside the process, and closes the connection to it.
func (v *live) detach() {
	if v.cancel != nil {
		v.cancel()
	}
	v.beside.Wait()
	_ = v.remote.Close()
}
