// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// answering is how long the host may take to answer a verb that only asks.
const answering = 30 * time.Second

// A host is `pointsman run`, and the verbs that ask it.
type host struct {
	binary  string
	run     []string // arguments
	socket  []string // the flag by which the verbs find it
	logFile string

	cmd    *exec.Cmd     // nil: not started
	exited chan struct{} // closed when it has ended
	plugin int           // the process seen last
}

func newHost(s Settings, folder, manifests string) *host {
	socket := []string{"--admin-socket", filepath.Join(folder, "pointsman.sock")}
	run := append([]string{"run", "--config", s.Config, "--files", manifests, "--state-dir", filepath.Join(folder, "state")}, socket...)
	if isGuest() {
		run = append(run, "--mode", "iptables")
	}
	for _, dir := range s.PluginDir {
		run = append(run, "--plugin-dir", dir)
	}
	return &host{binary: s.Binary, run: run, socket: socket, logFile: filepath.Join(folder, "host.log")}
}

// start starts it. A goroutine waits for its end.
func (h *host) start() error {
	log, err := os.Create(h.logFile)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(h.binary, h.run...)
	cmd.Stdout, cmd.Stderr, cmd.Env = log, log, environment(os.Environ())
	apart(cmd)
	if err := cmd.Start(); err != nil {
		return err
	}
	h.cmd, h.exited = cmd, make(chan struct{})
	go func() {
		_ = cmd.Wait() // how it ended stands in its log
		close(h.exited)
	}()
	return nil
}

// environment returns env without what would change the host's settings: each demo
// shows the same.
func environment(env []string) []string {
	return slices.DeleteFunc(env, func(e string) bool { return strings.HasPrefix(e, "POINTSMAN_") })
}

// ask runs a verb and returns what it prints. An exit code of 2 is no error: it
// says that there is something to look at.
func (h *host) ask(ctx context.Context, limit time.Duration, verb ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, h.binary, append(verb, h.socket...)...)
	cmd.Env = environment(os.Environ())
	out, err := cmd.Output()
	exit, failed := errors.AsType[*exec.ExitError](err)
	switch {
	case failed && exit.ExitCode() == 2:
		return string(out), nil
	case failed:
		return "", fmt.Errorf("pointsman %s: %w: %s", strings.Join(verb, " "), err, strings.TrimSpace(string(exit.Stderr)))
	}
	return string(out), err
}

// pluginProcess returns the process of the plugin that serves.
func (h *host) pluginProcess(ctx context.Context) (int, error) {
	out, err := h.ask(ctx, answering, "plugin", "list", "-o", "json")
	if err != nil {
		return 0, err
	}
	pid, err := processInUse([]byte(out))
	if err == nil {
		h.plugin = pid
	}
	return pid, err
}

// processInUse finds it in what `pointsman plugin list -o json` prints.
func processInUse(list []byte) (int, error) {
	var plugins struct {
		Items []struct {
			InUse bool `json:"inUse"`
			PID   int  `json:"pid"`
		} `json:"items"`
	}
	if err := json.Unmarshal(list, &plugins); err != nil {
		return 0, fmt.Errorf("read the list of plugins: %w", err)
	}
	for _, p := range plugins.Items {
		if p.InUse && p.PID > 0 {
			return p.PID, nil
		}
	}
	return 0, errors.New("no plugin runs")
}

// stop ends the host as Ctrl-C does, and makes sure that its plugin is gone too.
func (h *host) stop() error {
	if h.cmd == nil {
		return nil
	}
	_, _ = h.pluginProcess(context.Background()) // to know the process; a host that has ended cannot report it
	_ = h.cmd.Process.Signal(os.Interrupt)
	select {
	case <-h.exited:
	case <-time.After(15 * time.Second):
		_ = h.cmd.Process.Kill()
		<-h.exited
		endProcess(h.plugin)
		return errors.New("the host did not end within 15 s of being interrupted, and was killed")
	}
	for deadline := time.Now().Add(5 * time.Second); alive(h.plugin); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			endProcess(h.plugin)
			return fmt.Errorf("the host ended and left its plugin, process %d, which was killed", h.plugin)
		}
	}
	return nil
}

// explain adds the last lines of the host's log to err.
func (h *host) explain(err error) error {
	text, _ := os.ReadFile(h.logFile) // without it there is less to say
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	lines = lines[max(0, len(lines)-15):]
	return fmt.Errorf("%w\nthe host's last words:\n  %s", err, strings.Join(lines, "\n  "))
}

// endProcess kills a process at once.
func endProcess(pid int) {
	if p, err := os.FindProcess(pid); pid > 0 && err == nil {
		_ = p.Kill() // it may have ended
		_ = p.Release()
	}
}
