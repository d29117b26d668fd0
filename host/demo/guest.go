// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// guestEnv is set where the demo shows ipvs and nothing else, in a kernel that has it.
const guestEnv = "POINTSMAN_DEMO_GUEST"

func isGuest() bool { return os.Getenv(guestEnv) != "" }

// hasIPVS reports whether this kernel does.
func hasIPVS() bool {
	_, err := os.Stat("/proc/sys/net/ipv4/vs")
	return err == nil
}

// balance returns the act that needs IPVS: from iptables to ipvs while requests run.
func (d *demo) balance(ctx context.Context) error {
	if err := d.swapTo(ctx, "ipvs"); err != nil {
		return err
	}
	return d.killKernel(ctx)
}

// elsewhere shows ipvs in user-mode Linux, a kernel that is a process, where this one
// has no IPVS. It says why not, where that is not to be had.
func (d *demo) elsewhere(ctx context.Context) error {
	if !inside() || hasIPVS() {
		return nil
	}
	d.screen.step("7  Where the kernel has IPVS: user-mode Linux")
	d.screen.say("(This kernel has no IPVS, or has not loaded it: modprobe ip_vs)")
	run := filepath.Join(filepath.Dir(filepath.Dir(d.settings.Binary)), "test", "uml", "run")
	if _, err := exec.LookPath("linux.uml"); err != nil {
		d.screen.say("(Nor is there user-mode Linux: apt-get install user-mode-linux kmod gcc libc6-dev)")
		return nil
	}
	if _, err := os.Stat(run); err != nil {
		d.screen.say("(What boots user-mode Linux is in a clone of the repository: sudo make demo)")
		return nil
	}
	d.screen.say("$ %s %s demo", run, d.settings.Binary)
	return d.boot(ctx, run)
}

// noGuest is how the runner ends where there can be no guest.
const noGuest = 125

// boot has a guest show its part.
func (d *demo) boot(ctx context.Context, run string) error {
	var complaint bytes.Buffer
	cmd := exec.CommandContext(ctx, run, d.settings.Binary, "demo", "--config", d.settings.Config)
	for _, dir := range d.settings.PluginDir {
		cmd.Args = append(cmd.Args, "--plugin-dir", dir)
	}
	cmd.Env = append(environment(os.Environ()), guestEnv+"=1", "UML_TIMEOUT=300")
	cmd.Stdout, cmd.Stderr = d.screen.out, &complaint
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // and it ends its guest
	cmd.WaitDelay = 10 * time.Second
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == noGuest && ctx.Err() == nil {
		d.screen.say("(Not here: %s)", strings.Join(strings.Fields(complaint.String()), " "))
		return nil
	}
	if err != nil {
		return errors.Join(errors.New("in user-mode Linux the demo went wrong"), err)
	}
	return nil
}
