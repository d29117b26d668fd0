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

// Command is a program to be run once, in a process group of its own, in the network namespace
// of the calling thread. When ctx ends the group is killed and reaped. It is handed hold, if
// that is not nil: a lock that lasts until the program is done.
func Command(ctx context.Context, hold *os.File, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second // the whole group is killed, so this is for busy machines
	if hold != nil {
		cmd.ExtraFiles = []*os.File{hold}
	}
	return cmd
}

// once runs a program once. When ctx ended the error says so.
func (t Tool) once(ctx context.Context, stdout io.Writer, program string, stdin []byte, args ...string) (stderr string, err error) {
	var said bytes.Buffer
	writes := stdin != nil
	if !writes {
		t.Hold = nil // whatever only reads needs no lock
	}
	cmd := Command(ctx, t.Hold, program, args...)
	if writes {
		cmd.Stdin = bytes.NewReader(stdin)
	}
	cmd.Stdout, cmd.Stderr = stdout, &said
	counts := writes && t.Commits != nil && t.Backend == NFT
	var before uint32
	if counts {
		before, _ = generation() // zero: then a block that changes nothing counts, too, and the next look reads more
	}
	if err = cmd.Start(); err == nil {
		own.add(cmd.Process.Pid)
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

// add counts the commits of a script that has run, before which the rule set had a generation: one for each block, but
// for those that changed nothing.
func (c *Commits) add(script []byte, before uint32) {
	blocks := uint32(bytes.Count(script, []byte("\nCOMMIT\n")))
	if now, err := generation(); err == nil {
		blocks = min(blocks, now-before)
	}
	c.n.Add(blocks)
}

// followProgress tells Heard each second in which the program with process id pid got on, until
// stop. One that loads much is silent for long, and uses the processor; one that hangs
// does not.
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
			if now := used(pid); now != before {
				before = now
				t.Heard()
			}
		}
	}()
	return func() { close(ended); <-over }
}

// used is what of the processor a process has used so far, as the kernel writes it:
// in its own code, and in the kernel's for it. Empty: there is no such process.
func used(pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	// The name, in parentheses, may have spaces; the two are the 12th and 13th after it.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 13 {
		return ""
	}
	return string(fields[11]) + " " + string(fields[12])
}

// check asks by go-iptables whether a chain has a rule: it starts a program, which waits for the lock for a second
// at most, and takes only the exit codes 0 and 1 for an answer. Whatever writes goes by a Script instead, and
// whatever reads whole tables by Save: cancelled with its context, and the former under the writer's lock.
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
