// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/sdk/sdktest/netns"
	"github.com/pointsman/pointsman/test/apart"
	"github.com/pointsman/pointsman/test/cluster"
)

// A node is a node of the cluster: a machine in each land.
type node struct {
	*place
	name     string
	pods     [2]*place
	machines []*machine
}

// A machine is a node in one land, with its own host.
type machine struct {
	*admin.Client
	node    *node
	land    *land
	net     *netns.Host
	dir     string
	sockets string // the folder of the plugins' sockets, if the host runs apart
	way     *apiConnection
	kept    []*apart.Keeper // the plugins, if the host runs apart

	ended chan struct{} // closed when the host has ended; nil: none was started
	pid   int
}

// newNode creates node i, with its pods, its machines and its Node object.
func (w *world) newNode(i int) *node {
	w.Helper()
	n := &node{name: "node-" + string(rune('a'+i))}
	n.place = w.place(n.name, addr("192.0.2.%d", i+1), addr("2001:db8::%d", i+1))
	for j := range n.pods {
		n.pods[j] = w.pod(i, j, n.place)
	}
	for _, l := range w.lands {
		m := &machine{node: n, land: l, net: n.hosts[l.index], dir: w.shortDir(), sockets: w.shortDir()}
		m.Client = admin.NewClient(m.path("admin.sock"))
		m.way = w.newAPIConnection(m)
		n.machines = append(n.machines, m)
	}
	w.register(n, i)
	return n
}

// shortDir returns a folder whose path is short enough for sockets.
func (w *world) shortDir() string {
	w.Helper()
	dir, err := os.MkdirTemp("", "e2e-")
	if err == nil {
		err = os.Chmod(dir, 0o755) // for a host that runs apart
	}
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func (m *machine) path(name string) string { return filepath.Join(m.dir, name) }

// register creates the Node object of a node.
func (w *world) register(n *node, i int) {
	w.Helper()
	cluster.AddNode(w, w.kube, n.name, i, n.addrs[:]...)
}

// configure writes the machine's settings.
func (w *world) configure(m *machine) {
	w.Helper()
	text := fmt.Sprintf(`apiVersion: pointsman.dev/v1alpha1
kind: HostConfig
mode: %s
source: {kubernetes: {kubeconfig: %q}}
hostnameOverride: %s
detectLocalMode: NodeCIDR
minSyncPeriod: 20ms
syncPeriod: 2s
adminSocket: admin.sock
stateDir: state
oomScoreAdj: 0
pluginDirs: [%q]
plugins: {%s}
`, m.land.name, m.way.kubeconfig, m.node.name, cluster.Binaries, strings.Join(m.plugins(), ", "))
	if err := os.WriteFile(m.path("host.yaml"), []byte(text), 0o644); err != nil {
		w.Fatal(err)
	}
}

// plugins returns the settings of the plugins.
func (m *machine) plugins() []string {
	if !m.land.apart {
		return []string{fmt.Sprintf("%s: {options: {%s}}", m.land.name, m.land.options)}
	}
	var all []string
	for _, p := range m.apart() {
		options := ""
		if p.Name == m.land.name {
			options = m.land.options
		}
		all = append(all, fmt.Sprintf("%s: {address: %q, options: {%s}}", p.Name, p.Address(), options))
	}
	return all
}

// start starts the hosts of nodes, and waits until they serve everything. They are stopped when the test ends.
func (w *world) start(nodes ...*node) {
	w.Helper()
	for _, n := range nodes {
		for _, l := range w.lands {
			m := n.machines[l.index]
			w.configure(m)
			w.startPlugins(m)
			w.launch(m)
			w.Cleanup(func() { w.stop(m) })
		}
	}
	for _, n := range nodes {
		w.waitUntilServed(n)
	}
}

// launch starts the machine's host.
func (w *world) launch(m *machine) {
	w.Helper()
	log, err := os.OpenFile(m.path("host.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		w.Fatal(err)
	}
	defer log.Close()
	words := []string{"run", "--config", m.path("host.yaml")}
	cmd := exec.Command(filepath.Join(cluster.Binaries, "pointsman"), words...)
	if m.land.apart {
		cmd = apart.Host(cmd.Path, words...)
	}
	cmd.Stdout, cmd.Stderr = log, log
	m.ended = w.startProcess(m, cmd)
	m.pid = cmd.Process.Pid
}

// startProcess is machine.begin, and fails the test on an error.
func (w *world) startProcess(m *machine, cmd *exec.Cmd) (ended chan struct{}) {
	w.Helper()
	ended, err := m.startProcess(cmd)
	if err != nil {
		w.Fatal(err)
	}
	return ended
}

// startProcess starts a process on the machine. The thread that starts it lives as long as the process, because the
// kernel sends the process a signal when the thread ends.
func (m *machine) startProcess(cmd *exec.Cmd) (ended chan struct{}, err error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error, 1)
	ended = make(chan struct{})
	go func() { // ends with the process
		defer close(ended)
		_ = m.net.Do(func() error {
			err := cmd.Start()
			started <- err
			if err == nil {
				_ = cmd.Wait() // it ends by a signal
			}
			return err
		})
	}()
	return ended, <-started
}

// waitUntilServed waits until n's hosts are ready and have confirmed everything.
func (w *world) waitUntilServed(n *node) {
	w.Helper()
	w.inEachLand(n.name+" serves", func(l *land) error {
		m := n.machines[l.index]
		s, err := m.Status(w.Context())
		switch {
		case err != nil:
			return fmt.Errorf("%w; the end of the log:\n%s", err, m.lastOutput())
		case !s.Healthy && !onlyRestarted(s.Warnings):
			return fmt.Errorf("warnings: %+v", s.Warnings)
		case s.Sync.Pending > 0 || s.Sync.Last.IsZero():
			return fmt.Errorf("%d of %d confirmed, %d pending", s.Sync.Acked, s.Sync.Sent, s.Sync.Pending)
		case l.apart:
			return apart.Powerless(m.pid)
		}
		return nil
	})
}

// onlyRestarted reports whether the only warnings are about plugins that a test has killed.
func onlyRestarted(list []admin.Warning) bool {
	for _, w := range list {
		if w.Code != "W002" {
			return false
		}
	}
	return true
}

// lastOutput returns the last 4 KiB of the host's log.
func (m *machine) lastOutput() string {
	data, err := os.ReadFile(m.path("host.log"))
	if err != nil {
		return err.Error()
	}
	return string(data[max(0, len(data)-4096):])
}

// signal sends sig to the machine's host, and waits until the host has ended.
func (w *world) signal(m *machine, sig syscall.Signal) {
	w.Helper()
	if m.ended == nil {
		return
	}
	_ = syscall.Kill(m.pid, sig)
	select {
	case <-m.ended:
		m.ended = nil
	case <-time.After(timeout):
		w.Fatalf("%s: %s's host does not end; the end of its log:\n%s", m.land.label, m.node.name, m.lastOutput())
	}
}

// run runs a program on the machine, and returns its output.
func (w *world) run(m *machine, name string, args ...string) string {
	w.Helper()
	ctx, cancel := cleanupContext()
	defer cancel()
	var out []byte
	err := m.net.Do(func() (err error) {
		out, err = exec.CommandContext(ctx, name, args...).CombinedOutput()
		return err
	})
	if err != nil {
		w.Fatalf("%s on %s of %s: %v: %s", name, m.node.name, m.land.label, err, out)
	}
	return string(out)
}

// stop ends the machine's host and plugin, and removes what they left in the kernel.
func (w *world) stop(m *machine) {
	w.Helper()
	w.signal(m, syscall.SIGINT)
	w.stopPlugins(m)
	w.run(m, filepath.Join(cluster.Binaries, "pointsman"), "cleanup", "--config", m.path("host.yaml"))
	if err := os.RemoveAll(m.path("state")); err != nil {
		w.Error(err)
	}
}
