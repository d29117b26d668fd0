// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/pointsman/pointsman/test/apart"
	"github.com/pointsman/pointsman/test/built"
)

// modes are the modes whose plugins a node has.
var modes = []string{"iptables", "userspace", "nftables"}

// programs are the binaries with failpoints, built for the first test that needs them.
var programs struct {
	once sync.Once
	dir  string
	err  error
}

// install installs the binaries: links to what was built, and copies of what a test replaces.
func (n *node) install() {
	n.Helper()
	programs.once.Do(func() {
		if programs.dir, programs.err = os.MkdirTemp("", "swap-bin"); programs.err != nil {
			return
		}
		packages := []string{"./host/pointsman"}
		for _, mode := range modes {
			packages = append(packages, "./plugins/"+mode+"/pointsman-dataplane-"+mode)
		}
		programs.err = built.Into(programs.dir, "failpoints", packages...)
	})
	if programs.err != nil {
		n.Fatal(programs.err)
	}
	n.installCopy(filepath.Join(programs.dir, "pointsman"), "pointsman")
	for _, mode := range modes {
		n.installPlugin(mode, programs.dir)
	}
}

// installPlugin installs the plugin of a mode from a folder.
func (n *node) installPlugin(mode, from string) {
	n.Helper()
	name := "pointsman-dataplane-" + mode
	n.installCopy(filepath.Join(from, name), "plugins/"+name)
}

// installCopy installs a binary as a package manager does.
func (n *node) installCopy(from, to string) {
	n.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(n.path(to)), 0o755), built.Place(from, n.path(to))); err != nil {
		n.Fatal(err)
	}
}

// start starts the host with additional environment variables, and waits until it serves.
func (n *node) start(env ...string) {
	n.Helper()
	n.run(n.host(), env...)
	if n.kept != nil {
		if err := apart.Powerless(n.cmd.Process.Pid); err != nil {
			n.Fatal(err)
		}
	}
}

// host returns the command that runs the host.
func (n *node) host() *exec.Cmd {
	words := []string{"run", "--config", n.path("host.yaml")}
	if n.kept != nil {
		return apart.Host(n.path("pointsman"), words...)
	}
	return exec.Command(n.path("pointsman"), words...)
}

// run is start for this command.
func (n *node) run(host *exec.Cmd, env ...string) {
	n.Helper()
	n.exec(host, env...)
	n.until("the host serves", func() error {
		s, err := n.Status(n.Context())
		switch {
		case err != nil:
			return err
		case s.Dataplane.Role != "active" || s.Sync.Acked == 0:
			return fmt.Errorf("%s is %s: %s", s.Dataplane.Name, s.Dataplane.State, s.Dataplane.Why)
		}
		return nil
	})
}

// exec starts the host by this command, and does not wait.
func (n *node) exec(host *exec.Cmd, env ...string) {
	n.Helper()
	host.Env = append(os.Environ(), env...)
	exited, err := n.begin(host)
	if err != nil {
		n.Fatal(err)
	}
	n.cmd, n.exited = host, exited
}

// begin starts a process, which writes to the host's log.
func (n *node) begin(cmd *exec.Cmd) (exited <-chan struct{}, err error) {
	log, err := os.OpenFile(n.path("host.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	ended := make(chan struct{})
	go func() { // ends with the process
		defer close(ended)
		_ = cmd.Wait()
	}()
	return ended, nil
}

// waitForAnswers waits until every caller is answered at every address.
func (n *node) waitForAnswers() {
	n.Helper()
	for _, c := range n.callers() {
		n.until(c.Name+" is answered at "+c.To.String(), func() error { return c.Try(n.Context()) })
	}
}

// end sends the host a signal, and waits for its end.
func (n *node) end(signal syscall.Signal) {
	n.Helper()
	if err := n.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		n.Fatal(err)
	}
	n.waitForExit()
}

// waitForExit waits until the host has ended.
func (n *node) waitForExit() {
	n.Helper()
	select {
	case <-n.exited:
	case <-time.After(long):
		n.Errorf("the host did not end in %s", long)
		_ = n.cmd.Process.Kill()
		<-n.exited
	}
	n.cmd = nil
}

// plugin returns the process of a mode's plugin, one of them if there are two; zero: there is none.
func (n *node) plugin(mode string) (pid int) {
	n.Helper()
	if n.kept != nil {
		return n.kept[mode].PID()
	}
	for id, exe := range n.processes() {
		if strings.HasSuffix(strings.TrimSuffix(exe, " (deleted)"), "-"+mode) {
			pid, _ = strconv.Atoi(id)
		}
	}
	return pid
}

// processes returns the processes of this node's plugins, whatever the file is called now: binaries by process id.
func (n *node) processes() map[string]string {
	n.Helper()
	all := make(map[string]string)
	links, _ := filepath.Glob("/proc/[0-9]*/exe")
	for _, link := range links {
		if exe, err := os.Readlink(link); err == nil && strings.HasPrefix(exe, n.path("plugins")+"/") {
			all[filepath.Base(filepath.Dir(link))] = exe
		}
	}
	// A program that a plugin starts has the plugin's binary at first.
	maps.DeleteFunc(all, func(pid, _ string) bool {
		text, _ := os.ReadFile("/proc/" + pid + "/status")
		_, rest, _ := strings.Cut(string(text), "\nPPid:")
		fields := strings.Fields(rest)
		return len(fields) == 0 || all[fields[0]] != ""
	})
	return all
}
