// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// errNoNamespace says that there is no network to write rules in.
var errNoNamespace = errors.New("no network namespace of the demo's own")

// swap returns the second act: the mode changes while requests run, there and back, and
// the plugin is killed where that costs nothing.
func (d *demo) swap(ctx context.Context) error {
	if !inside() {
		d.screen.step("6  The mode changes while requests run")
		d.screen.say("(Not here: it writes rules into the kernel. As root, on Linux, the demo does that in")
		d.screen.say("a network namespace of its own: sudo make demo)")
		return nil
	}
	d.screen.step("6  The mode changes while requests run")
	if _, err := d.host.ask(ctx, answering, "plugin", "info", "iptables"); err != nil {
		why, _, _ := strings.Cut(err.Error(), "\n")
		d.screen.say("(Not here: %s)", why)
		return nil
	}
	modes := []string{"iptables"}
	if hasIPVS() {
		modes = append(modes, "ipvs")
	}
	for _, mode := range modes {
		if err := d.swapAndKill(ctx, mode); err != nil {
			return err
		}
	}
	return d.swapTo(ctx, "userspace")
}

// swapAndKill changes the mode while requests run, and kills the plugin, whose rules are in
// the kernel.
func (d *demo) swapAndKill(ctx context.Context, mode string) error {
	if err := d.swapTo(ctx, mode); err != nil {
		return err
	}
	return d.killKernel(ctx)
}

// swapTo changes the mode, and lets requests run on.
func (d *demo) swapTo(ctx context.Context, mode string) error {
	d.screen.say("$ pointsman mode swap %s --wait", mode)
	then, began := d.load.now(), time.Now()
	out, err := d.ask(ctx, mode)
	if err != nil {
		return err
	}
	took := time.Since(began)
	if err := d.watch(ctx, func() bool { return time.Since(began) > took+time.Second }); err != nil {
		return err
	}
	s := d.load.since(then)
	d.screen.say("  %s (%s; %d requests meanwhile and in the second after, %d failed)",
		strings.TrimSpace(out), short(took), s.requests, len(s.failed))
	return d.noneFailed()
}

// ask has the host change its mode, and waits until it has. While what served before is
// being cleared away the host takes no other wish, and on a machine that is too busy for
// its limits it undoes the change: then it is asked again.
func (d *demo) ask(ctx context.Context, mode string) (out string, err error) {
	late := d.watch(ctx, func() bool {
		out, err = d.host.ask(ctx, limit+5*time.Second, "mode", "swap", mode, "--wait="+limit.String())
		return err == nil || !mayAskAgain(err.Error())
	})
	return out, errors.Join(err, late)
}

// mayAskAgain reports whether the host, by what it says, may succeed another time.
func mayAskAgain(why string) bool {
	return slices.ContainsFunc(later, func(sign string) bool { return strings.Contains(why, sign) })
}

// later is how the host says that.
var later = []string{
	"another swap is under way", "deadline exceeded", "did not get on for", "gets on no more", "took longer than", "no handshake within",
	"updates were held back for", "updates may be held back for",
}

// killKernel kills a plugin whose rules are in the kernel.
func (d *demo) killKernel(ctx context.Context) error {
	pid, err := d.host.pluginProcess(ctx)
	if err != nil {
		return err
	}
	d.screen.say("$ kill -9 %d", pid)
	then, killed := d.load.now(), time.Now()
	endProcess(pid)
	next := 0
	var last error
	err = d.watch(ctx, func() bool {
		next, last = d.host.pluginProcess(ctx)
		return last == nil && next != pid && time.Since(killed) > time.Second
	})
	if err != nil {
		return fmt.Errorf("wait for another process: %w", errors.Join(err, last))
	}
	s := d.load.since(then)
	d.screen.say("  its rules forward on, and process %d takes them over (%d requests meanwhile, %d failed)",
		next, s.requests, len(s.failed))
	return d.noneFailed()
}

// guestEnv is set where the demo shows ipvs and nothing else, in a kernel that has it.
const guestEnv = "POINTSMAN_DEMO_GUEST"

func isGuest() bool { return os.Getenv(guestEnv) != "" }

// hasIPVS reports whether this kernel does.
func hasIPVS() bool {
	_, err := os.Stat("/proc/sys/net/ipv4/vs")
	return err == nil
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
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == noGuest && ctx.Err() == nil {
		d.screen.say("(Not here: %s)", strings.Join(strings.Fields(complaint.String()), " "))
		return nil
	}
	if err != nil {
		return errors.Join(errors.New("in user-mode Linux the demo went wrong"), err)
	}
	return nil
}
