// SPDX-License-Identifier: Apache-2.0

package supervise

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/pointsman/pointsman/host/launch"
	"github.com/pointsman/pointsman/internal/descriptors"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/statefile"
	"github.com/pointsman/pointsman/sdk/wire"
)

// A Plugin is what to run.
type Plugin struct {
	Name        string
	Path        string
	SHA256      string          // of its content, in hexadecimal; empty: anything
	Options     json.RawMessage // Setup.Options
	StateDir    string          // its own; made if it must be
	SocketDir   string          // for its socket; empty: the system's directory for temporary files
	OOMScoreAdj *int
	Env         []string // beyond the few variables that every plugin gets

	// Address is where a plugin listens that something else keeps running: another container, or systemd. The
	// Supervisor connects to it instead of starting it, and Path is not used. Empty: it is started.
	Address string

	// Debug has a process that hangs be reported and not killed, and gives its calls a day: a debugger may have stopped
	// it.
	Debug bool
}

// Hooks are what a Supervisor calls. All are given. They are called from its goroutines, never two Session calls at a
// time.
type Hooks struct {
	// Start is called before each start of a process, and returns when it may begin. An error is ctx's.
	Start func(ctx context.Context) error

	// Session is called for each process that is up and configured. It serves the plugin until ctx ends, which it does
	// with the process; an error before that has the plugin started again.
	Session func(ctx context.Context, l Life) error

	// Transition is called for each change of state. It must return soon.
	Transition func(Transition)

	// Log is called for each line of the plugin's stderr. It must return soon.
	Log func(wire.LogLine)

	// Beat is called with what a process reports, each second. It must return soon.
	Beat func(*wire.Remote, wire.Vitals)
}

// A Life is that of one process.
type Life struct {
	Remote      *wire.Remote
	Description sdk.Description
}

// A State is that of a plugin's process.
type State uint8

// The states.
const (
	Stopped  State = iota // Run has not begun, or has ended
	Starting              // being started, greeted and configured
	Serving               // in a session
	Suspect               // it missed a heartbeat
	Waiting               // it ended or did not start; tried again at Next
	Refused               // it cannot run here; tried again when something changes
)

var states = [...]string{"stopped", "starting", "serving", "suspect", "waiting", "refused"}

func (s State) String() string {
	if int(s) < len(states) {
		return states[s]
	}
	return fmt.Sprintf("state(%d)", s)
}

// A Transition is a change of state.
type Transition struct {
	Time     time.Time
	From, To State
	Why      string
	PID      int  // of the process it is about; zero: none
	Left     bool // with To Stopped: something else runs the process, and it serves on
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
	Looked      time.Time // when Run last looked at it; zero: it has not begun
}

// Coming reports whether the plugin has a process, or is about to have one.
func (s Status) Coming() bool {
	switch s.State {
	case Waiting, Refused:
		return false
	case Stopped:
		return s.Since.IsZero() // Run has not begun
	}
	return true
}

const (
	longLife      = 60 * time.Second       // a process that served so long is started again at once, and failures before it are forgotten
	firstBackoff  = 100 * time.Millisecond // doubled with each failure in a row,
	lastBackoff   = 30 * time.Second       // up to this
	refusedRetry  = time.Minute            // what was wrong may have changed unseen
	yieldFor      = time.Hour              // the other host may be gone by then
	hinderedRetry = time.Second            // the host was short of resources, and nothing was tried
	dialEach      = time.Second            // a plugin at an address
	silentLimit   = 10 * time.Second       // without a heartbeat; three times as long for a process whose end ends connections
	connectLimit  = 10 * time.Second       // for greeting and configuring a plugin at an address
)

// A Supervisor runs one plugin.
type Supervisor struct {
	plugin  Plugin
	hooks   Hooks
	restart chan restarted // Run takes it

	mu     sync.Mutex // guards what follows
	shown  Status
	binary string // the file of the last start, as Identify describes it

	options json.RawMessage // Setup.Options of the next session
	former  json.RawMessage // those before, where options were not accepted yet; nil: they were

	file   *launch.Binary // the binary of the last start, kept open; nil: there was no start
	pinned bool           // file is started again, and not the binary at the plugin's path
}

// New returns a Supervisor that begins with Run.
func New(p Plugin, h Hooks) *Supervisor {
	return &Supervisor{
		plugin:  p,
		hooks:   h,
		restart: make(chan restarted, 1),
		options: p.Options,
		shown:   Status{Name: p.Name, Path: cmp.Or(p.Address, p.Path)},
	}
}

// Restart starts the plugin anew. What it keeps in the kernel stays meanwhile.
func (s *Supervisor) Restart(why string) {
	s.ask(restarted{why: why})
}

func (s *Supervisor) ask(r restarted) {
	select {
	case s.restart <- r:
	default: // a restart is due
	}
}

// SetOptions begins a new session, with other options, with a plugin that something else keeps running. If it refuses
// them, the session after has the options of before.
func (s *Supervisor) SetOptions(options json.RawMessage) {
	s.mu.Lock()
	s.former, s.options = s.options, options
	s.mu.Unlock()
	s.ask(restarted{why: "its options have changed", goesOn: true})
}

// Options returns those of the present session, or of the next one where there is none.
func (s *Supervisor) Options() json.RawMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.options
}

// Pin has only the binary be started from now on that was started last, also if there is another one at its path by
// now. A script cannot be held like that. It is called while Run does not run.
func (s *Supervisor) Pin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pinned = s.file != nil
}

// Close forgets the binary that was started last. It is called once Run has ended for good.
func (s *Supervisor) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file != nil {
		s.file.Close()
		s.file = nil
	}
}

// Replaced reports whether the binary is another than the one that runs. Of a plugin that something else keeps
// running that is not known here.
func (s *Supervisor) Replaced() bool {
	if s.plugin.Address != "" {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.plugin.Identify()
	return now != "" && s.binary != "" && (now != s.binary || s.pinned)
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

// enter changes the state and tells the hook.
func (s *Supervisor) enter(to State, why string, next time.Time) {
	s.mu.Lock()
	t := Transition{Time: time.Now(), From: s.shown.State, To: to, Why: why, PID: s.shown.PID}
	s.shown.State, s.shown.Since, s.shown.Why, s.shown.Next = to, t.Time, why, next
	if to != Serving && to != Suspect {
		t.Left = to == Stopped && s.plugin.Address != "" && s.shown.PID != 0
		s.shown.Up, s.shown.PID, s.shown.Vitals = time.Time{}, 0, wire.Vitals{}
	}
	s.mu.Unlock()
	if t.From != to {
		s.hooks.Transition(t)
	}
}

// Run keeps the plugin running until ctx ends, and then ends its process, for the reason that is ctx's cause where it
// has one.
func (s *Supervisor) Run(ctx context.Context) {
	why, failures := "", 0
	for begun := 0; s.hooks.Start(ctx) == nil; begun++ {
		s.mu.Lock()
		s.binary = s.plugin.Identify()
		s.shown.Restarts, s.shown.Looked = begun, time.Now()
		s.mu.Unlock()
		s.enter(Starting, why, time.Time{})
		served, err := s.life(ctx)
		if ctx.Err() != nil {
			break
		}
		var next retry
		next, failures = retryAfter(err, served, failures)
		if s.plugin.Address != "" && next.state == Waiting { // to ask what is there costs next to nothing
			next.most, next.jitter = dialEach, 0
		}
		if why = next.why; next.state != Starting {
			why = s.wait(ctx, next.state, why, next.most-rand.N(next.jitter+1)) // at random, so that the plugins of many nodes do not come back together
		}
	}
	end := "the host ends"
	if cause := context.Cause(ctx); cause != ctx.Err() {
		end = cause.Error()
	}
	s.enter(Stopped, end, time.Time{})
}

// A retry says when and in which state a plugin is tried again: at the latest after most, and up to jitter earlier.
type retry struct {
	state        State
	most, jitter time.Duration
	why          string
}

// retryAfter returns what follows the end of a process that served so long, after so many failures in a row.
func retryAfter(err error, served time.Duration, failures int) (retry, int) {
	why := err.Error()
	restart, asked := errors.AsType[restarted](err)
	_, refused := errors.AsType[*sdk.Refusal](err)
	switch {
	case asked && restart.goesOn: // nothing went wrong
		return retry{state: Starting}, 0
	case asked:
		return retry{state: Starting, why: why}, 0
	case errors.Is(err, wire.ErrFenced):
		return retry{state: Refused, most: yieldFor, why: "another host has taken it over; pointsman plugin restart takes it back"}, 0
	case refused && served == 0: // later it is a call that was refused, and no more than a failure
		return retry{state: Refused, most: refusedRetry, why: why}, failures
	case exhausted(err):
		why = fmt.Sprintf("the host is short of descriptors or memory (RLIMIT_NOFILE is %d), which is not the plugin's fault: %v", descriptors.Limit(), err)
		return retry{state: Waiting, most: hinderedRetry, why: why}, failures
	case served >= longLife:
		return retry{state: Starting, why: why}, 0
	}
	backoff := min(firstBackoff<<min(failures, 16), lastBackoff)
	return retry{state: Waiting, most: backoff, jitter: backoff, why: why}, failures + 1
}

// wait waits until the plugin is to be tried again: after d, when its binary changes, or by Restart. It returns why.
func (s *Supervisor) wait(ctx context.Context, state State, why string, d time.Duration) string {
	next := time.Now().Add(d)
	s.enter(state, why, next)
	due := time.NewTimer(d)
	defer due.Stop()
	look := time.NewTicker(time.Second)
	defer look.Stop()
	for {
		s.show(func(st *Status) { st.Looked = time.Now() })
		select {
		case <-ctx.Done():
			return why
		case <-due.C:
			return why
		case r := <-s.restart:
			return r.why
		case <-look.C:
			if !s.pinned && s.plugin.Identify() != s.binary {
				return "the binary changed"
			}
		}
	}
}

// restarted is the end of a process that was asked for.
type restarted struct {
	why    string
	goesOn bool // with the same process
}

func (r restarted) Error() string { return r.why }

// life starts a process, or connects to it, and runs its session until that ends. It returns how long the process
// served and why it ended.
func (s *Supervisor) life(ctx context.Context) (served time.Duration, err error) {
	remote, child, err := s.obtain(ctx)
	if err != nil {
		return 0, err
	}
	d, err := s.configure(ctx, remote)
	if err != nil {
		end(remote, child, err)
		return 0, err
	}
	up := time.Now()
	s.show(func(st *Status) {
		st.Version, st.Description, st.PID, st.Up = d.Version, d, remote.Hello().PID, up
	})
	s.enter(Serving, "", time.Time{})
	running, cancel := context.WithCancel(ctx)
	session := make(chan error, 1)
	go func() {
		defer close(session)
		session <- s.hooks.Session(running, Life{remote, d})
	}()
	err = s.follow(ctx, remote, d, session)
	s.show(func(st *Status) { st.LastEnd, st.LastEndAt = err.Error(), time.Now() })
	end(remote, child, err)
	cancel()
	for range session { // until it has returned
	}
	return time.Since(up), err
}

// errHung is the end of a process that does not answer.
var errHung = errors.New("it hangs")

// end ends a process, or closes the connection to one that something else runs: that is asked to end only for a
// restart.
func end(remote *wire.Remote, child *launch.Plugin, why error) {
	restart, asked := errors.AsType[restarted](why)
	switch {
	case child != nil && errors.Is(why, errHung):
		_ = child.Kill() // of one that the kernel does not end there is nothing more to be done
	case child != nil:
		_ = child.Stop() // the same
	case asked && !restart.goesOn:
		_ = remote.Shutdown(context.Background()) // what runs it has ways of its own to end one that does not answer
		endsSoon(remote)
		fallthrough
	default:
		_ = remote.Close()
	}
}

// endsSoon waits a second for the end of a process, and reports whether it has ended.
func endsSoon(remote *wire.Remote) bool {
	select {
	case <-remote.Exited():
		return true
	case <-time.After(time.Second):
		return false
	}
}

// obtain starts a process or connects to one. child is nil for one that something else runs.
func (s *Supervisor) obtain(ctx context.Context) (remote *wire.Remote, child *launch.Plugin, err error) {
	p := s.plugin
	if !ValidName(p.Name) {
		return nil, nil, fmt.Errorf("%q is no dataplane's name: want lower-case letters, digits and -", p.Name)
	}
	if p.Address != "" {
		target, err := wire.At(p.Address)
		if err != nil {
			return nil, nil, err
		}
		ctx, cancel := context.WithTimeout(ctx, connectLimit)
		defer cancel()
		remote, err := wire.Attach(ctx, target)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
			err = fmt.Errorf("%w; try: start what runs it, such as systemctl enable --now pointsman-dataplane@%s", err, p.Name)
		}
		return remote, nil, err
	}
	binary, err := s.open()
	if err != nil {
		return nil, nil, fmt.Errorf("launch %w", err)
	}
	child, err = launch.Launch(ctx, binary, launch.Command{
		Env:         p.Env,
		SocketDir:   p.socketDir(),
		StateDir:    p.StateDir,
		OOMScoreAdj: p.OOMScoreAdj,
		Log:         func(line string) { s.hooks.Log(wire.ParseLogLine(line, time.Now())) },
	})
	if err != nil {
		return nil, nil, err
	}
	return child.Remote, child, nil
}

// open returns the binary to start: the one at the plugin's path, unless the supervisor is pinned to another.
func (s *Supervisor) open() (*launch.Binary, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pinned {
		return s.file, nil
	}
	binary, err := launch.OpenBinary(s.plugin.Path, s.plugin.SHA256)
	if err != nil {
		return nil, err
	}
	if s.file != nil {
		s.file.Close()
	}
	s.file = binary
	return binary, nil
}

// socketDir returns where the socket goes: to the system's directory for temporary files where nothing can be made in
// the one that is asked for, because it is full or read-only.
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

// configure begins a session. Where the plugin refuses changed options, it has those of before.
func (s *Supervisor) configure(ctx context.Context, remote *wire.Remote) (sdk.Description, error) {
	s.mu.Lock()
	options, former := s.options, s.former
	s.former = nil
	s.mu.Unlock()
	d, err := remote.Configure(ctx, sdk.Setup{Options: options, StateDir: s.plugin.StateDir})
	if refusal, refused := errors.AsType[*sdk.Refusal](err); refused && former != nil {
		s.hooks.Log(wire.LogLine{Time: time.Now(), Level: slog.LevelError, Message: "the plugin refused its new options, and goes on with those of before: " + refusal.Error()})
		s.mu.Lock()
		s.options = former
		s.mu.Unlock()
		d, err = remote.Configure(ctx, sdk.Setup{Options: former, StateDir: s.plugin.StateDir})
	}
	if err == nil && d.Name != s.plugin.Name {
		err = fmt.Errorf("%s calls itself %q: its name must be %q", cmp.Or(s.plugin.Address, s.plugin.Path), d.Name, s.plugin.Name)
	}
	if err != nil {
		return d, fmt.Errorf("configure: %w", err)
	}
	if s.plugin.Debug {
		remote.Debugged()
	}
	return d, nil
}

// follow asks each second how the process is doing, and returns why it is over: it has ended or hangs, its session
// has failed, a restart was asked for, or ctx has ended.
func (s *Supervisor) follow(ctx context.Context, remote *wire.Remote, d sdk.Description, session <-chan error) error {
	type answer struct {
		vitals wire.Vitals
		took   time.Duration
		err    error
	}
	answers := make(chan answer)
	asking, cancel := context.WithCancel(ctx)
	var asked sync.WaitGroup
	asked.Go(func() { // until asking ends
		for tick := time.NewTicker(time.Second); ; {
			began := time.Now()
			vitals, err := remote.Vitals(asking)
			select {
			case answers <- answer{vitals, time.Since(began), err}:
			case <-asking.Done():
				return
			}
			select {
			case <-tick.C:
			case <-asking.Done():
				return
			}
		}
	})
	defer asked.Wait()
	defer cancel()
	spared := s.plugin.Address != "" || s.plugin.Debug
	limit := silentLimit
	if slices.Contains(d.Limits, sdk.LimitDiesWithProcess) {
		limit *= 3
	}
	var last heartbeat
	for heard := time.Now(); ; {
		s.show(func(st *Status) { st.Looked = time.Now() })
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-remote.Exited():
			return errors.New(remote.Ending())
		case <-remote.Lost(): // a process that ends closes the connection a moment before
			if !endsSoon(remote) {
				return errors.New("the connection to it was lost")
			}
		case why := <-s.restart:
			return why
		case err := <-session:
			if err != nil {
				return err
			}
			session = nil // the process is about to end, or is kept for what was asked of it besides
		case a := <-answers:
			hangs := ""
			switch {
			case a.err == nil:
				heard = time.Now()
				last, hangs = last.next(a.vitals, a.took)
				s.show(func(st *Status) { st.Vitals = a.vitals })
				s.hooks.Beat(remote, a.vitals)
			case exhausted(a.err): // the host could not ask
				heard = time.Now()
			case time.Since(heard) >= limit:
				hangs = "does not answer: " + a.err.Error()
			}
			switch state := s.Status().State; {
			case hangs != "" && !spared:
				return fmt.Errorf("%w: %s", errHung, hangs)
			case hangs != "" || a.err != nil && !exhausted(a.err):
				if state == Serving {
					s.enter(Suspect, cmp.Or(hangs, fmt.Sprint(a.err)), time.Time{})
				}
			case state == Suspect:
				s.enter(Serving, "", time.Time{})
			}
		}
	}
}
