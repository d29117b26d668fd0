// SPDX-License-Identifier: Apache-2.0

/*
Package apart runs a host and its plugins as a node does that keeps them apart, for the
suites that else have the host start its plugins:

	host     user 65532, no capability          ── unix socket ──  plugin   root, its
	         at all, and none to be had again                               capabilities only

Neither is the other's child. Who starts a plugin again when it ends is neither the host
nor the test, but a Keeper, as systemd or the kubelet would be.
*/
package apart

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pointsman/pointsman/test/eventually"
)

// User is the user and the group of the host.
const User = 65532

// Asked reports whether every host of a suite should run apart, and not only some.
func Asked() bool { return os.Getenv("POINTSMAN_APART") != "" }

// Host returns the command that runs a host.
func Host(binary string, words ...string) *exec.Cmd {
	user := fmt.Sprint(User)
	return exec.Command("setpriv", append([]string{"--reuid=" + user, "--regid=" + user, "--clear-groups",
		"--bounding-set=-all", "--inh-caps=-all", "--no-new-privs", "--pdeathsig=KILL", binary}, words...)...)
}

// Powerless returns an error if a process has rights that a host apart must not have.
func Powerless(pid int) error {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return err
	}
	none := fmt.Sprintf("%016x", 0)
	user := strings.Repeat(fmt.Sprintf("\t%d", User), 4)
	for _, want := range []string{"Uid:" + user, "Gid:" + user, "CapPrm:\t" + none, "CapEff:\t" + none, "CapBnd:\t" + none, "CapAmb:\t" + none, "NoNewPrivs:\t1"} {
		if !slices.Contains(strings.Split(string(status), "\n"), want) {
			return fmt.Errorf("process %d does not have %q:\n%s", pid, want, status)
		}
	}
	return nil
}

// A Plugin listens for itself.
type Plugin struct {
	Name   string
	Binary string
	Socket string // in a folder that the plugin creates
	Legacy bool   // the node has tables of iptables-legacy
	Env    []string
}

// Address returns the plugin's address for the host: plugins.NAME.address.
func (p Plugin) Address() string { return "unix://" + p.Socket }

// capabilities returns exactly what the plugin needs: the rows of docs/security.md.
func (p Plugin) capabilities() string {
	if p.Legacy {
		return "+net_admin,+net_raw"
	}
	return "+net_admin"
}

// command returns what systemd or the kubelet runs: as root, in the host's group.
func (p Plugin) command() *exec.Cmd {
	cmd := exec.Command("setpriv", fmt.Sprintf("--regid=%d", User), "--clear-groups",
		"--bounding-set=-all,"+p.capabilities(), "--inh-caps=-all", "--no-new-privs", "--pdeathsig=KILL",
		p.Binary, "--listen", p.Address(), "--allow-uid", fmt.Sprint(User))
	cmd.Env = p.Env
	return cmd
}

// A Begin starts a process where it belongs, and returns a channel that is closed when the process has ended.
type Begin func(*exec.Cmd) (ended <-chan struct{}, err error)

// A Keeper runs a plugin, and starts it again, until Stop.
type Keeper struct {
	stop    chan struct{}
	stopped sync.WaitGroup

	mu  sync.Mutex // guards what follows
	pid int
	err error
}

// Keep starts the plugin, and waits until it listens.
func Keep(p Plugin, begin Begin) (*Keeper, error) {
	k := &Keeper{stop: make(chan struct{})}
	ended, err := k.begin(p, begin)
	if err != nil {
		return nil, err
	}
	k.stopped.Go(func() { k.keep(p, begin, ended) }) // ends with Stop
	if err := listens(p.Socket); err != nil {
		return nil, fmt.Errorf("%s: %w", p.Name, errors.Join(err, k.Stop()))
	}
	return k, nil
}

func (k *Keeper) begin(p Plugin, begin Begin) (<-chan struct{}, error) {
	cmd := p.command()
	ended, err := begin(cmd)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", filepath.Base(p.Binary), err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.pid = cmd.Process.Pid
	return ended, nil
}

// The settings of a supervisor, as in configs/kubernetes-sidecar.
const (
	pause  = 100 * time.Millisecond // between the end and the next start
	period = 5 * time.Second        // between two probes
	wrongs = 3                      // failed probes in a row that end the plugin
)

// keep starts the plugin again whenever it ends, until Stop, and kills a plugin that hangs.
func (k *Keeper) keep(p Plugin, begin Begin, ended <-chan struct{}) {
	tick := time.NewTicker(period)
	defer tick.Stop()
	for wrong := 0; ; {
		select {
		case <-k.stop:
			k.kill()
			<-ended
			return
		case <-tick.C:
			if wrong++; exec.Command(p.Binary, "alive", p.Address()).Run() == nil {
				wrong = 0
			}
			if wrong == wrongs {
				k.kill()
			}
			continue
		case <-ended:
		}
		wrong = 0
		time.Sleep(pause)
		var err error
		if ended, err = k.begin(p, begin); err != nil {
			k.mu.Lock()
			k.err = err
			k.mu.Unlock()
			return
		}
	}
}

func (k *Keeper) kill() {
	if process, err := os.FindProcess(k.PID()); err == nil {
		_ = process.Kill()
	}
}

// PID returns the plugin's current process.
func (k *Keeper) PID() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.pid
}

// Stop ends the plugin. It returns the reason if the plugin could not be started again.
func (k *Keeper) Stop() error {
	close(k.stop)
	k.stopped.Wait()
	return k.err
}

// listens waits until something listens at a socket.
func listens(socket string) error {
	return eventually.Try(30*time.Second, func() error {
		conn, err := net.Dial("unix", socket)
		if err == nil {
			err = conn.Close()
		}
		return err
	})
}

// Give gives the host's user these paths.
func Give(paths ...string) error {
	for _, path := range paths {
		if err := os.Chown(path, User, User); err != nil {
			return err
		}
	}
	return nil
}
