// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// runInto runs a program of the tool with the arguments, and stdin if that is not nil,
// and what it prints goes to stdout. While another program holds the lock of the tables
// it tries again, for as long as ctx allows, and says that it waits.
func (t Tool) runInto(ctx context.Context, stdout io.Writer, program string, stdin []byte, args ...string) (stderr string, err error) {
	waited := false
	for {
		stderr, err = t.once(ctx, stdout, program, stdin, args...)
		if err == nil || ctx.Err() != nil || !strings.Contains(stderr, "xtables lock") {
			break
		}
		if t.Waiting != nil && !waited {
			waited = true
			t.Waiting("the xtables lock, which another program holds")
		}
	}
	if waited {
		t.Waiting("")
	}
	return stderr, err
}

// once runs a program once, in a process group of its own, in the network namespace
// of the calling thread. When ctx ends the group is killed and reaped, and the
// error says that ctx ended.
func (t Tool) once(ctx context.Context, stdout io.Writer, program string, stdin []byte, args ...string) (stderr string, err error) {
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdout, cmd.Stderr = stdout, &said
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second // the whole group is killed, so this is for busy machines
	writes := stdin != nil
	if writes {
		cmd.Stdin = bytes.NewReader(stdin)
	}
	if writes && t.Hold != nil {
		cmd.ExtraFiles = []*os.File{t.Hold}
	}
	if err = cmd.Start(); err == nil {
		if writes && t.Started != nil {
			t.Started(cmd.Process.Pid)
		}
		stop := t.followProgress(cmd.Process.Pid)
		err = cmd.Wait()
		stop()
		if writes && t.Ended != nil {
			t.Ended()
		}
	}
	if ctx.Err() != nil {
		err = errors.Join(ctx.Err(), err)
	}
	return said.String(), err
}
