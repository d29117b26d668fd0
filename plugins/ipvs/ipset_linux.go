// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// ipset are the sets, by netlink where there are few entries, and by the program
// where there are many.
type ipset struct {
	hold *os.File // handed to the program: the writer's lock lasts until it is done
}

// Hold has the program keep a file open.
func (i *ipset) Hold(file *os.File) { i.hold = file }

func (i *ipset) Sets(ctx context.Context) (map[sdk.Family]setsOf, error) {
	out, err := i.run(ctx, "", "save")
	if err != nil {
		return nil, err
	}
	return readSets(out)
}

func (i *ipset) Restore(ctx context.Context, lines string) error {
	_, err := i.run(ctx, lines, "restore", "-exist")
	return err
}

// run runs the program in a process group of its own. When ctx ends the group is
// killed and reaped.
func (i *ipset) run(ctx context.Context, stdin string, args ...string) ([]byte, error) {
	var out, answers bytes.Buffer
	cmd := exec.CommandContext(ctx, "ipset", args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &answers
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second // the whole group is killed, so this is for busy machines
	if i.hold != nil {
		cmd.ExtraFiles = []*os.File{i.hold}
	}
	err := cmd.Run()
	if ctx.Err() != nil {
		return nil, errors.Join(ctx.Err(), err)
	}
	if err != nil {
		return nil, fmt.Errorf("ipset %s: %w: %s", args[0], err, strings.TrimSpace(answers.String()))
	}
	return out.Bytes(), nil
}
