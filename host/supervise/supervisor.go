// SPDX-License-Identifier: Apache-2.0

package supervise

import (
	"cmp"
	"context"
	"encoding/json"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/wire"
)

// A Plugin is what to run.
type Plugin struct {
	Name        string
	Path        string
	SHA256      string          // of its content, in hexadecimal; empty: anything
	Options     json.RawMessage // Setup.Options
	StateDir    string          // its own; made if it must be
	HostDir     string          // the host's state directory, which marks its processes; empty: StateDir
	Slot        string          // tells two processes of one StateDir apart
	SocketDir   string          // where its socket goes; empty: the system's for temporary files
	OOMScoreAdj *int

	// Address is where a plugin listens that something else keeps running: another
	// container, or systemd. It is connected to instead of started, and left running
	// at the end; its Path is not used. Empty: it is started.
	Address string
	Env     []string // beyond the few variables that every plugin gets

	// Debug has a process that hangs be reported and not ended, and gives its calls a day: a
	// debugger may have stopped it.
	Debug bool
}

// Hooks are what a Supervisor calls when something happens. All are given. They are called from its
// goroutines, never two Session calls at a time.
type Hooks struct {
	// Session is called for each process that came up and was configured. It
	// serves the plugin until ctx ends, which it does when the process is gone; an
	// error before that makes the plugin start anew.
	Session func(ctx context.Context, l Life) error

	// Transition is called for each change of state. It must return soon.
	Transition func(Transition)

	// Log is called for each line of the plugin's log.
	Log func(wire.LogLine)

	// Beat is called with what a process reports, each second. It must return soon.
	Beat func(*wire.Remote, wire.Vitals)
}

// A Life is that of one process.
type Life struct {
	Remote      *wire.Remote
	Warnings    []string // what went wrong at launch without keeping it from being used
	Description sdk.Description
}

// A Transition is a change of state. One whose From and To are the same changes
// nothing: its Why is something to know.
type Transition struct {
	Time     time.Time
	From, To State
	Why      string
	PID      int  // of the process it is about; zero: none
	Left     int  // pid of the process that serves on without this host; zero: none
	Taken    bool // it does not: it ends with the host, the first process of a container
}

// A Status is the state of a plugin.
type Status struct {
	Name, Path  string // Path: or its address
	State       State
	Since       time.Time
	Why         string // what went wrong last, where it is not serving
	PID         int
	Version     string
	Description sdk.Description
	Up          time.Time // since when it serves; zero: it does not
	Restarts    int       // processes started after the first
	LastEnd     string    // how the last process ended; empty: none did
	LastEndAt   time.Time
	Next        time.Time // when it is tried again; zero: it is not waiting
	Vitals      wire.Vitals
	Unwritten   string    // why the way to its process could not be written down; empty: it is
	Looked      time.Time // when Run last looked at it; zero: it has not begun
}

// Coming reports whether the plugin has a process, or will have one at any moment, so that
// it is worth waiting for what that says.
func (s Status) Coming() bool {
	switch s.State {
	case Waiting, Refused:
		return false
	case Stopped:
		return s.Since.IsZero() // Run has not begun
	}
	return true
}

// A Supervisor runs one plugin.
type Supervisor struct {
	plugin Plugin
	hooks  Hooks
	events chan event

	mu     sync.Mutex // guards what follows
	shown  Status
	binary identity // of what was launched last
	leave  bool
}

// An event is given to the machine if it is about the present process; process
// zero is about the plugin as such.
type event struct {
	Event
	process int
	came    *live // with Launched
}

// New returns a Supervisor that begins with Run.
func New(p Plugin, h Hooks) *Supervisor {
	return &Supervisor{
		plugin: p,
		hooks:  h,
		events: make(chan event, 16),
		shown:  Status{Name: p.Name, Path: cmp.Or(p.Address, p.Path)},
	}
}

// Run keeps the plugin running until ctx ends, and then stops it, for the reason that is
// ctx's cause where it has one, unless Leave was called. It begins with the process that a former host left behind, if there is
// one.
func (s *Supervisor) Run(ctx context.Context) {
	l := &loop{Supervisor: s, now: time.Now}
	defer func() { l.finish(why(ctx)) }()
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	l.step(ctx, event{Event: Event{Kind: Begin}})
	for {
		wake := l.wake()
		s.show(func(st *Status) { st.Looked = l.now() })
		select {
		case <-ctx.Done():
			return
		case e := <-s.events:
			if e.process == 0 || e.process == l.machine.Launches {
				l.step(ctx, e)
			} else if e.came != nil {
				s.drop(e.came)
			}
		case <-ticker.C:
			l.tick(ctx)
		case <-wake:
			l.step(ctx, event{Event: Event{Kind: Tick}})
		}
	}
}

// Restart starts the plugin anew. What it keeps in the kernel stays meanwhile.
func (s *Supervisor) Restart(why string) {
	select {
	case s.events <- event{Event: Event{Kind: Restart, Why: why}}:
	default: // the loop has much to do; a restart is under way if anything is
	}
}

// Replaced reports whether the binary is another than the one that runs. Of a plugin that
// something else keeps running that is not known here.
func (s *Supervisor) Replaced() bool {
	if s.plugin.Address != "" {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := identify(s.plugin.Path)
	return now != identity{} && s.binary != identity{} && now != s.binary
}

// Leave makes Run leave the plugin's process running when it ends.
func (s *Supervisor) Leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leave = true
}

func (s *Supervisor) leaves() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leave
}

// Status returns the present state of the plugin.
func (s *Supervisor) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shown
}

func (s *Supervisor) show(change func(*Status)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.shown)
}

// jitter picks a time between zero and most.
func jitter(most time.Duration) time.Duration { return rand.N(most + 1) }
