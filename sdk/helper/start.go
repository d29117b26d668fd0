// SPDX-License-Identifier: Apache-2.0

package helper

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/pointsman/pointsman/sdk/statefile"
)

// A Command says how to start a helper.
type Command struct {
	Name string   // tells the helpers of a dataplane apart: lower-case letters, digits and -
	Path string   // the executable, absolute; it is never looked for in PATH
	Args []string // after the name
	Env  []string // its whole environment, but for what a host knows it by; nil: this process's
	Dir  string   // its working directory; empty: the root

	// Files are inherited as descriptors 3, 4 and so on. Others are not, so that a helper
	// holds no lock of the dataplane's.
	Files []*os.File
}

// tokenKey is the variable that says of which record a process is.
const tokenKey = "POINTSMAN_HELPER"

// hostKey is the variable by which a host knows what its plugins have started.
const hostKey = "POINTSMAN_PROCESS"

// starting is held by the one Start that runs: two could start one name twice.
var starting sync.Mutex

// Start starts a helper, and declares it in dir, which is made if it is missing; a host looks
// into Dir(Setup.StateDir). The helper does not end with ctx, nor with this process. What
// it prints goes to NAME.log in dir, which begins empty.
//
// It is an error if a helper of that name runs: Find returns that one. What a former one that
// has ended itself left behind is ended first.
func Start(ctx context.Context, dir string, c Command) (*Process, error) {
	p, err := start(ctx, dir, c)
	if err != nil {
		return nil, fmt.Errorf("start helper %q: %w", c.Name, err)
	}
	return p, nil
}

func start(ctx context.Context, dir string, c Command) (*Process, error) {
	starting.Lock()
	defer starting.Unlock()
	if err := errors.Join(ctx.Err(), c.check()); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if err := statefile.Guarded(dir); err != nil {
		return nil, err
	}
	if old, err := read(dir, c.Name); err == nil {
		if old.Runs() {
			return nil, fmt.Errorf("it runs already, as process %d; use helper.Find, or end it first", old.PID)
		}
		endRest(old, nil)
	}
	r := Record{Name: c.Name, Boot: bootID(), Path: c.Path, Args: slices.Clone(c.Args), Token: rand.Text()}
	if err := write(dir, r); err != nil {
		return nil, err
	}
	proc, err := c.execute(dir, r.Token)
	if err != nil {
		return nil, errors.Join(err, statefile.Remove(recordFile(dir, c.Name)))
	}
	return declare(dir, r, proc)
}

// declare completes the record of a process that was started. One that cannot be declared is
// ended.
func declare(dir string, r Record, proc *os.Process) (*Process, error) {
	r.PID = proc.Pid
	now, err := readStat(proc.Pid)
	if err == nil {
		r.Start = now.start
		err = write(dir, r)
	}
	p := newProcess(dir, r, proc)
	go p.reap()
	if err == nil {
		go p.trim()
		return p, nil
	}
	_ = proc.Kill() // it fails only for a process that has ended
	if errors.Is(err, os.ErrProcessDone) {
		err = fmt.Errorf("it ended at once; it printed: %s", lastPrinted(dir, r.Name))
	}
	return nil, errors.Join(err, statefile.Remove(recordFile(dir, r.Name)))
}

func (c Command) check() error {
	switch {
	case !supported:
		return errUnsupported
	case !validName.MatchString(c.Name):
		return fmt.Errorf("its name must be lower-case letters, digits and -, at most %d of them", maxName)
	case !filepath.IsAbs(c.Path):
		return fmt.Errorf("the path %q of its executable is not absolute", c.Path)
	}
	return nil
}

// execute starts the process.
func (c Command) execute(dir, token string) (*os.Process, error) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	log, err := os.OpenFile(logFile(dir, c.Name), os.O_WRONLY|os.O_APPEND|os.O_CREATE|os.O_TRUNC|noFollow, 0o600)
	if err != nil {
		return nil, fmt.Errorf("its output: %w", err)
	}
	defer log.Close()
	work := c.Dir
	if work == "" {
		work = string(filepath.Separator)
	}
	return os.StartProcess(c.Path, append([]string{c.Path}, c.Args...), &os.ProcAttr{
		Dir:   work,
		Env:   c.environ(token),
		Files: append([]*os.File{null, log, log}, c.Files...),
		Sys:   separate(),
	})
}

// environ returns its environment: what was asked for, what a host knows it by, and the token.
func (c Command) environ(token string) []string {
	env := c.Env
	if env == nil {
		env = os.Environ()
	}
	env = slices.DeleteFunc(slices.Clone(env), func(v string) bool {
		return strings.HasPrefix(v, tokenKey+"=") || strings.HasPrefix(v, hostKey+"=")
	})
	if mark, ok := os.LookupEnv(hostKey); ok {
		env = append(env, hostKey+"="+mark)
	}
	return append(env, tokenKey+"="+token)
}

// Find returns the helper of that name that this process or a former one of the plugin
// started in dir. Where none runs the error is ErrNone; it is os.ErrProcessDone too, where
// there is a record of one that has ended.
func Find(dir, name string) (*Process, error) {
	if !supported {
		return nil, errUnsupported
	}
	r, err := read(dir, name)
	if err != nil {
		return nil, err
	}
	if err := statefile.Guarded(dir); err != nil {
		return nil, fmt.Errorf("find helper %q: %w", name, err)
	}
	if r.PID <= 1 { // it never ran
		return nil, fmt.Errorf("helper %q: %w", name, ErrNone)
	}
	proc, err := os.FindProcess(r.PID)
	if err == nil && !r.Runs() { // asked now that proc is held by a pidfd, where there is one
		_ = proc.Release()
		err = os.ErrProcessDone
	}
	if err != nil {
		return nil, fmt.Errorf("helper %s: %w: %w", r, ErrNone, err)
	}
	p := newProcess(dir, r, proc)
	if err := write(dir, r); err != nil { // its pid may not have been written down
		p.Release()
		return nil, err
	}
	go p.follow()
	go p.trim()
	return p, nil
}
