// SPDX-License-Identifier: Apache-2.0

package supervise

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/pointsman/pointsman/host/launch"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/statefile"
	"github.com/pointsman/pointsman/sdk/wire"
)

// A Plugin describes what to run.
type Plugin struct {
	Name        string
	Path        string
	SHA256      string // of the binary, in hexadecimal; empty means unchecked
	StateDir    string // the plugin's own directory; created if missing
	SocketDir   string // for its socket; empty means the system's temporary directory
	OOMScoreAdj *int
	Env         []string // in addition to the few variables that every plugin gets

	// Address is the address of a plugin that something else runs: another container, or
	// systemd. Start connects to it and does not use Path. If empty, Start starts a process.
	Address string

	// Debug is for plugins that a debugger may stop: a hang is reported but the process is not
	// killed, and its calls may take a day.
	Debug bool
}

// Where returns the plugin's address, or the path of its binary.
func (p Plugin) Where() string { return cmp.Or(p.Address, p.Path) }

const (
	silentLimit  = 10 * time.Second // without a heartbeat; three times as long if the end of the process ends connections
	connectLimit = 10 * time.Second // for Hello with a plugin at an address
)

// A Process is a configured process of a plugin. Its owner must call either Watch once, which
// also ends the process, or End.
type Process struct {
	*wire.Remote
	Description sdk.Description

	plugin Plugin
	child  *launch.Plugin // nil if something else runs it
}

// Open opens the plugin's binary. It returns nil if the plugin has an Address.
func (p Plugin) Open() (*launch.Binary, error) {
	if p.Address != "" {
		return nil, nil
	}
	binary, err := launch.OpenBinary(p.Path, p.SHA256)
	if err != nil {
		return nil, fmt.Errorf("launch %w", err)
	}
	return binary, nil
}

// Start starts a process of the binary, or connects to the plugin's Address, and configures it.
// After an error, no process that Start started is left. Start calls log for each line of the
// process's stderr; log must return soon.
func (p Plugin) Start(ctx context.Context, binary *launch.Binary, options json.RawMessage, log func(wire.LogLine)) (*Process, error) {
	process := &Process{plugin: p}
	if p.Address != "" {
		remote, err := p.connect(ctx)
		if err != nil {
			return nil, err
		}
		process.Remote = remote
	} else {
		child, err := launch.Launch(ctx, binary, launch.Command{
			Env:         p.Env,
			SocketDir:   p.socketDir(),
			StateDir:    p.StateDir,
			OOMScoreAdj: p.OOMScoreAdj,
			Log:         func(line string) { log(wire.ParseLogLine(line, time.Now())) },
		})
		if err != nil {
			return nil, err
		}
		process.Remote, process.child = child.Remote, child
	}
	d, err := process.Configure(ctx, sdk.Setup{Options: options, StateDir: p.StateDir})
	if err == nil && d.Name != p.Name {
		err = fmt.Errorf("%s calls itself %q: its name must be %q", p.Where(), d.Name, p.Name)
	}
	if err != nil {
		process.End(err)
		return nil, fmt.Errorf("configure: %w", err)
	}
	process.Description = d
	if p.Debug {
		process.Debugged()
	}
	return process, nil
}

// connect connects to the plugin's address.
func (p Plugin) connect(ctx context.Context) (*wire.Remote, error) {
	target, err := wire.At(p.Address)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, connectLimit)
	defer cancel()
	remote, err := wire.Attach(ctx, target)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		err = fmt.Errorf("%w; try: start what runs it, such as systemctl enable --now pointsman-dataplane@%s", err, p.Name)
	}
	return remote, err
}

// socketDir returns the directory for the socket, or "" for the system's temporary directory if
// SocketDir is not usable, because it is full or read-only.
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

// ErrRestart is in the error chain if a process ends because it will be restarted.
var ErrRestart = errors.New("pointsman plugin restart was asked for")

// errHung is in the error chain if a process is killed because it does not answer.
var errHung = errors.New("it hangs")

// Watch sends a heartbeat each second until the process has ended or hangs, an error arrives
// from over, or ctx ends. Then it ends the process and returns the reason. A nil from over
// means that the user of the process is done with it, and ends nothing. Watch calls beat with
// each report; doubt is the reason why the process may be about to hang.
func (p *Process) Watch(ctx context.Context, over <-chan error, beat func(v wire.Vitals, doubt string)) error {
	why := p.follow(ctx, over, beat)
	p.End(why)
	return why
}

// End ends a process that Start has started. For a process that something else runs, End closes
// the connection, and asks the process to end only for a restart.
func (p *Process) End(why error) {
	switch {
	case p.child != nil && errors.Is(why, errHung):
		_ = p.child.Kill() // if the kernel cannot end it, we can do no more
	case p.child != nil:
		_ = p.child.Stop() // likewise
	case errors.Is(why, ErrRestart):
		_ = p.Shutdown(context.Background()) // whatever runs it can end it if it does not answer
		p.endsSoon()
		fallthrough
	default:
		_ = p.Close()
	}
}

// endsSoon waits up to a second for the end of the process, and reports whether it has ended.
func (p *Process) endsSoon() bool {
	select {
	case <-p.Exited():
		return true
	case <-time.After(time.Second):
		return false
	}
}

// follow is Watch without ending the process.
func (p *Process) follow(ctx context.Context, over <-chan error, beat func(wire.Vitals, string)) error {
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
			vitals, err := p.Vitals(asking)
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
	spared := p.plugin.Address != "" || p.plugin.Debug
	limit := silentLimit
	if slices.Contains(p.Description.Limits, sdk.LimitDiesWithProcess) {
		limit *= 3
	}
	var last heartbeat
	var vitals wire.Vitals
	for heard := time.Now(); ; {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-p.Exited():
			return errors.New(p.Ending())
		case <-p.Lost(): // a process closes its connection a moment before it ends
			if !p.endsSoon() {
				return errors.New("the connection to it was lost")
			}
		case why := <-over:
			if why != nil {
				return why
			}
		case a := <-answers:
			hangs := ""
			switch {
			case a.err == nil:
				heard, vitals = time.Now(), a.vitals
				last, hangs = last.next(a.vitals, a.took)
			case time.Since(heard) >= limit:
				hangs = "does not answer: " + a.err.Error()
			}
			if hangs != "" && !spared {
				return fmt.Errorf("%w: %s", errHung, hangs)
			}
			if hangs == "" && a.err != nil {
				hangs = a.err.Error()
			}
			beat(vitals, hangs)
		}
	}
}
