// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// leash is a shell script that runs a command and kills it when descriptor 3 reaches its end, so that the command also
// ends if the test is killed.
const leash = `"$@" </dev/null 3<&- & child=$!; (read -r _; kill -9 $child) <&3 2>/dev/null & wait $child`

// A process is a command that can be started and stopped several times.
type process struct {
	t       testing.TB
	command []string
	log     string

	stdin io.Closer     // leash kills the command when it is closed
	done  chan struct{} // closed when the command has ended
}

func newProcess(t testing.TB, name string, command ...string) *process {
	full := append([]string{"sh", "-c", `exec 3<&0; ` + leash, name}, command...)
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
	if p.stdin, err = cmd.StdinPipe(); err != nil {
		p.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		p.t.Fatalf("starting %v: %v", p.command, err)
	}
	done := make(chan struct{})
	p.done = done
	go func() { // ends with the process
		_ = cmd.Wait() // returns the signal as an error
		close(done)
	}()
}

// stop kills the process, and waits until it has ended. It does nothing if the process has ended.
func (p *process) stop() {
	p.stdin.Close()
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

// lastOutput returns the last 4 KiB of the output.
func (p *process) lastOutput() string {
	data, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(data[max(0, len(data)-4096):])
}
