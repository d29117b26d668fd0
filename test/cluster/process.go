// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

// leash starts a command that ends when its standard input does, so that nothing is left of a test that was killed.
const leash = `"$@" </dev/null 3<&- & child=$!; (read -r _; kill -9 $child) <&3 2>/dev/null & wait $child`

// A process can be started and stopped, several times.
type process struct {
	t       testing.TB
	command []string
	log     string

	rope io.Closer // held while it runs
	done chan struct{}
}

func newProcess(t testing.TB, name string, wrap []string, command ...string) *process {
	full := slices.Concat(wrap, []string{"sh", "-c", `exec 3<&0; ` + leash, name}, command)
	return &process{t: t, command: full, log: filepath.Join(t.TempDir(), name+".log")}
}

func (p *process) start() {
	p.t.Helper()
	out, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		p.t.Fatal(err)
	}
	defer out.Close()
	cmd := exec.Command(p.command[0], p.command[1:]...)
	cmd.Stdout, cmd.Stderr = out, out
	if p.rope, err = cmd.StdinPipe(); err != nil {
		p.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		p.t.Fatalf("starting %v: %v", p.command, err)
	}
	done := make(chan struct{})
	p.done = done
	go func() { // ends with the process
		_ = cmd.Wait() // it was killed
		close(done)
	}()
}

// stop kills the process, and waits until it has ended. It may be called again.
func (p *process) stop() {
	p.rope.Close()
	<-p.done
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// words returns the last output.
func (p *process) words() string {
	data, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(data[max(0, len(data)-4096):])
}
