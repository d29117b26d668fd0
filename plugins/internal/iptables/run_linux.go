// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	goiptables "github.com/coreos/go-iptables/iptables"

	"github.com/pointsman/pointsman/sdk"
)

// runInto runs a program of the tool, with stdin if that is not nil, and writes its output to stdout. While
// another program holds the xtables lock, it tries again until ctx ends, and reports by Waiting that it waits.
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

// Command returns a command that runs in a process group of its own, in the network namespace of the calling
// thread. When ctx ends, the group is killed and reaped. If hold is not nil, the program inherits it: a lock on
// it lasts until the program ends.
func Command(ctx context.Context, hold *os.File, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second // the group is killed at once; the delay is for busy machines
	if hold != nil {
		cmd.ExtraFiles = []*os.File{hold}
	}
	return cmd
}

// once runs a program once. If ctx ended, the error says so.
func (t Tool) once(ctx context.Context, stdout io.Writer, program string, stdin []byte, args ...string) (stderr string, err error) {
	var said bytes.Buffer
	writes := stdin != nil
	if !writes {
		t.Hold = nil // a program that only reads needs no lock
	}
	cmd := Command(ctx, t.Hold, program, args...)
	if writes {
		cmd.Stdin = bytes.NewReader(stdin)
	}
	cmd.Stdout, cmd.Stderr = stdout, &said
	counts := writes && t.Commits != nil && t.Backend == NFT
	var before uint32
	if counts {
		before, _ = generation() // on an error 0: blocks that change nothing are then counted too, and the next look reads more
	}
	if err = cmd.Start(); err == nil {
		stop := t.followProgress(cmd.Process.Pid)
		err = cmd.Wait()
		stop()
		if counts && err == nil {
			t.Commits.add(stdin, before)
		}
	}
	if ctx.Err() != nil {
		err = errors.Join(ctx.Err(), err)
	}
	return said.String(), err
}

// add counts the commits of a script that has run: one per block, except blocks that changed nothing. before is
// the generation of the rule set before the run.
func (c *Commits) add(script []byte, before uint32) {
	blocks := uint32(bytes.Count(script, []byte("\nCOMMIT\n")))
	if now, err := generation(); err == nil {
		blocks = min(blocks, now-before)
	}
	c.n.Add(blocks)
}

// followProgress calls Heard each second in which the process makes progress, until stop. A program that loads
// many rules prints nothing for long, but uses CPU time. One that hangs does not.
func (t Tool) followProgress(pid int) (stop func()) {
	if t.Heard == nil {
		return func() {}
	}
	ended, over := make(chan struct{}), make(chan struct{})
	go func() { // ends with stop, which waits for it
		defer close(over)
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()
		var before string
		for {
			select {
			case <-ended:
				return
			case <-ticker.C:
			}
			if now := cpuTime(pid); now != before {
				before = now
				t.Heard()
			}
		}
	}()
	return func() { close(ended); <-over }
}

// cpuTime returns the CPU time of a process in user and kernel mode, as in /proc, or "" if the process does not
// exist.
func cpuTime(pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	// The name in parentheses may contain spaces. utime and stime are the 12th and 13th field after it.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 13 {
		return ""
	}
	return string(fields[11]) + " " + string(fields[12])
}

// check asks by go-iptables whether a chain has a rule. That runs a program which waits at most a second for
// the lock, and only the exit codes 0 and 1 are an answer. Writes use a Script instead, and reading whole
// tables uses Save: both are cancelled by their context, and writes hold the writer's lock.
func (t Tool) check(id ID, words []string) (bool, error) {
	protocol := goiptables.ProtocolIPv4
	if t.Family == sdk.IPv6 {
		protocol = goiptables.ProtocolIPv6
	}
	program, err := goiptables.New(goiptables.IPFamily(protocol), goiptables.Path(t.Prefix), goiptables.Timeout(1))
	if err != nil {
		return false, err
	}
	return program.Exists(id.Table, id.Chain, words...)
}
