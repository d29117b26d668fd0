// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/helper"
	"github.com/pointsman/pointsman/sdk/statefile"
)

// An instance is one process of HAProxy. Its configuration is never read again: where frontends
// change, another instance inherits its listening sockets, and it ends with its last connection.
//
//	start ──▶ serves ──▶ retire: listens no more ──▶ ends with its last connection ──▶ remove
type instance struct {
	number  int
	dir     string // its configuration, its sections, and its socket
	helpers string // where its process is declared
	process *helper.Process
}

func (i *instance) name() string            { return fmt.Sprintf("haproxy-%d", i.number) }
func (i *instance) socket() string          { return filepath.Join(i.dir, "s") }
func (i *instance) api() api                { return api(i.socket()) }
func (i *instance) file(name string) string { return filepath.Join(i.dir, name) }

func (i *instance) String() string { return fmt.Sprintf("HAProxy, pid %d", i.process.PID()) }

func (i *instance) write(name string, content func(io.Writer) error) error {
	return statefile.Replace(i.file(name), 0o600, content)
}

// ended reports whether its process is gone.
func (i *instance) ended() bool { return i.process == nil || !i.process.Alive() }

// start starts its process with that configuration, and returns when it serves. It inherits the
// listening sockets of the one before, if there is one; both serve then. Where it cannot start,
// the error is a *startError.
func (i *instance) start(ctx context.Context, program, config string, before *instance, step func()) error {
	err := i.write(configFile, func(w io.Writer) error { _, err := io.WriteString(w, config); return err })
	if err != nil {
		return err
	}
	args := []string{"-db", "-f", i.file(configFile)}
	if before != nil && !before.ended() {
		args = append(args, "-x", before.socket())
	}
	i.process, err = helper.Start(ctx, i.helpers, helper.Command{Name: i.name(), Path: program, Args: args, Env: []string{}, Dir: i.dir})
	if err != nil {
		return err
	}
	return i.serves(ctx, step)
}

// startTime is how long HAProxy may take until it serves; ten thousand Services take some seconds
// on a machine that is idle.
const startTime = 2 * time.Minute

// serves waits until the process answers, and calls step meanwhile. It then has bound all that it
// listens on.
func (i *instance) serves(ctx context.Context, step func()) error {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	for {
		step()
		if pid, err := i.api().pid(ctx); err == nil && pid == i.process.PID() {
			return nil
		}
		select {
		case <-i.process.Done():
			text, _ := statefile.Read(filepath.Join(i.helpers, i.name()+".log")) // without it nothing is known
			return &startError{alerts(string(text))}
		case <-ctx.Done():
			return fmt.Errorf("start HAProxy: %w", ctx.Err())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// A startError is what HAProxy printed before it ended.
type startError struct{ alerts []string }

func (e *startError) Error() string {
	if len(e.alerts) == 0 {
		return "HAProxy ended at once, and did not say why"
	}
	const most = 3
	return "HAProxy does not start: " + strings.Join(e.alerts[:min(most, len(e.alerts))], "; ")
}

// alerts are the lines by which HAProxy says why it does not start:
//
//	[ALERT]    (312) : Starting proxy ns1.web..tcp4: cannot bind socket (Permission denied) [127.0.0.1:80]
func alerts(text string) (all []string) {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, "[ALERT]"); ok {
			_, why, _ := strings.Cut(rest, ") : ")
			all = append(all, strings.TrimSpace(why))
		}
	}
	return all
}

// of returns those of the sections that HAProxy could not start, and why.
func (e *startError) of(sections map[sdk.Name]section) (failed []sdk.Failure) {
	for n := range sections {
		for _, line := range e.alerts {
			if why, ok := strings.CutPrefix(line, "Starting proxy "+sectionName(n)+": "); ok {
				failed = append(failed, sdk.Failure{Name: n, Err: errors.New("HAProxy: " + why)})
				break
			}
		}
	}
	return failed
}

// retire has it listen no more, and end with its last connection.
func (i *instance) retire() error {
	if err := i.process.Signal(syscall.SIGUSR1); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("end %s with its last connection: %w", i, err)
	}
	return nil
}

// remove ends the process, if it has not, and removes what is left of it.
func (i *instance) remove(ctx context.Context) error {
	const grace = time.Second
	var err error
	if i.process != nil {
		err = i.process.End(ctx, grace)
	}
	if err != nil {
		return err
	}
	for _, left := range []string{".json", ".log", ".log.old"} {
		if i.helpers == "" {
			break // not known
		}
		if e := os.Remove(filepath.Join(i.helpers, i.name()+left)); !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	return errors.Join(err, os.RemoveAll(i.dir))
}

// ownerOf returns the user that a file belongs to.
func ownerOf(info fs.FileInfo) (uid int, known bool) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(stat.Uid), true
}
