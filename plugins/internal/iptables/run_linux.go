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

// run runs a program of the tool, in a process group of its own, in the network
// namespace of the calling thread. When ctx ends the group is killed and reaped,
// and the error says that ctx ended.
func (t Tool) run(ctx context.Context, program string, stdin io.Reader, args ...string) (stdout []byte, stderr string, err error) {
	var out bytes.Buffer
	said := &listener{waiting: t.Waiting}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &out, said
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 500 * time.Millisecond
	if t.Hold != nil && stdin != nil {
		cmd.ExtraFiles = []*os.File{t.Hold}
	}
	if err = cmd.Start(); err == nil {
		if t.Started != nil && stdin != nil {
			t.Started(cmd.Process.Pid)
		}
		err = cmd.Wait()
	}
	said.done()
	if ctx.Err() != nil {
		err = errors.Join(ctx.Err(), err)
	}
	return out.Bytes(), said.text.String(), err
}

// A listener keeps what a program says, and passes on that it waits.
type listener struct {
	text    bytes.Buffer
	waiting func(string)
	told    bool
}

func (l *listener) Write(p []byte) (int, error) {
	l.text.Write(p)
	if l.waiting != nil && !l.told && strings.Contains(string(p), "xtables lock") {
		l.told = true
		l.waiting("the xtables lock, which another program holds")
	}
	return len(p), nil
}

func (l *listener) done() {
	if l.told {
		l.waiting("")
	}
}
