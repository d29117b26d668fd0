// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/pointsman/pointsman/test/apart"
	"github.com/pointsman/pointsman/test/cluster"
)

// apart returns the plugins of a machine whose host runs apart: the active one, and one to swap to.
func (m *machine) apart() (all []apart.Plugin) {
	for _, name := range []string{"iptables", "userspace"} {
		all = append(all, apart.Plugin{
			Name: name, Binary: filepath.Join(cluster.Binaries, "pointsman-dataplane-"+name), Socket: filepath.Join(m.sockets, name, "s"),
			Legacy: m.land.legacy,
		})
	}
	return all
}

// startPlugins runs the machine's plugins if the host does not launch them, and gives the host access to its files.
func (w *world) startPlugins(m *machine) {
	w.Helper()
	if !m.land.apart {
		return
	}
	if err := apart.Give(m.dir, m.way.kubeconfig); err != nil {
		w.Fatal(err)
	}
	log, err := os.OpenFile(m.path("host.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { log.Close() })
	for _, p := range m.apart() {
		k, err := apart.Keep(p, func(cmd *exec.Cmd) (<-chan struct{}, error) {
			cmd.Stdout, cmd.Stderr = log, log
			return m.startProcess(cmd)
		})
		if err != nil {
			w.Fatalf("%s: %v; the end of the log:\n%s", m.land.label, err, m.lastOutput())
		}
		m.kept = append(m.kept, k)
	}
}

// stopPlugins ends the plugins that startPlugins has started.
func (w *world) stopPlugins(m *machine) {
	w.Helper()
	for _, k := range m.kept {
		if err := k.Stop(); err != nil {
			w.Error(fmt.Errorf("%s: %w", m.land.label, err))
		}
	}
	m.kept = nil
}
