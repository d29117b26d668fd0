// SPDX-License-Identifier: Apache-2.0

package packages

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/test/eventually"
)

// hostUnit is the host's unit, and units are all units: each dataplane has its own.
const hostUnit = "pointsman.service"

var units = []string{hostUnit, unitOf("iptables"), unitOf("ipvs"), unitOf("nftables"), unitOf("userspace")}

func unitOf(mode string) string { return "pointsman-dataplane@" + mode + ".service" }

// extraSettings is what a test adds to the packaged settings.
const extraSettings = `
syncPeriod: %s
swap: {drainTimeout: 2s}
healthzBindAddress: ""
metricsBindAddress: ""
linux: {conntrack: {maxPerCore: 0}}
`

// set writes the packaged settings, with Services from files.
func (m *machine) set(mode, syncPeriod string) {
	m.Helper()
	m.configure(mode)
	m.runInside("chgrp", "-R", "pointsman", "/etc/pointsman")
	packaged, err := os.ReadFile("../../configs/systemd/host.yaml")
	if err != nil {
		m.Fatal(err)
	}
	text := strings.NewReplacer("mode: iptables", "mode: "+mode, "kubernetes: {kubeconfig: /etc/pointsman/kubeconfig}", "files: {path: services}", "10.244.0.0/16", "10.180.0.0/24").Replace(string(packaged))
	if err := os.WriteFile(m.path("/etc/pointsman/host.yaml"), []byte(text+fmt.Sprintf(extraSettings, syncPeriod)), 0o640); err != nil {
		m.Fatal(err)
	}
}

// property returns a property of a unit.
func (m *machine) property(unit, property string) string {
	m.Helper()
	return strings.TrimSpace(m.runInside("systemctl", "show", "--value", "--property", property, unit))
}

// waitForNewProcesses waits until units run by other processes than when this was last called, and all Services are
// served.
func (m *machine) waitForNewProcesses(what string, units ...string) {
	m.Helper()
	for _, unit := range units {
		m.waitForNewProcess(what, unit)
	}
	m.serves("iptables")
}

// waitForNewProcess waits until a unit runs by another process than when this was last called.
func (m *machine) waitForNewProcess(what, unit string) {
	m.Helper()
	eventually.Succeeds(m, what+": another process of "+unit, func() error {
		pid, err := strconv.Atoi(m.property(unit, "MainPID"))
		if state := m.property(unit, "ActiveState"); err != nil || pid == 0 || pid == m.unit[unit] || state != "active" {
			return fmt.Errorf("unit %s is %s, with process %d; before it was process %d", unit, state, pid, m.unit[unit])
		}
		m.unit[unit] = pid
		return nil
	})
}

// expectRestarts: systemd starts each unit again, however often its process ends.
func (m *machine) expectRestarts() {
	m.Helper()
	for range 7 { // systemd's default limit is five in ten seconds
		m.runInside("systemctl", "kill", "--signal=KILL", unitOf("iptables"))
		m.waitForNewProcess("a crash", unitOf("iptables"))
	}
	m.runInside("systemctl", "kill", "--kill-who=main", "--signal=KILL", hostUnit)
	m.waitForNewProcesses("a crash of the host", hostUnit)
}

// swap changes the mode, between units that run already.
func (m *machine) swap(mode string) {
	m.Helper()
	before := m.property(unitOf(mode), "MainPID")
	m.runInside("pointsman", "mode", "swap", mode, "--wait")
	if pid := strconv.Itoa(m.serves(mode)); pid != before {
		m.Errorf("%s serves by process %s, and the unit had process %s before the swap", mode, pid, before)
	}
}

// relays: the connections through a relay outlive the host, and the next host finds the relay active.
func (m *machine) relays() {
	m.Helper()
	m.swap("userspace")
	load := m.load()
	before := m.serves("userspace")
	m.runInside("systemctl", "kill", "--kill-who=main", "--signal=KILL", hostUnit)
	m.waitForNewProcess("a crash of the host of a relay", hostUnit)
	if pid := m.serves("userspace"); pid != before {
		m.Errorf("process %d is the relay after a crash of the host, and was %d", pid, before)
	}
	load.Done(m, "the host of a relay crashed")
	m.swap("iptables")
}

// TestKernelSystemd installs, upgrades, downgrades, boots, removes and purges the packages with systemd as process 1,
// which starts the units with all their restrictions. No call fails meanwhile. The units of all modes run beside each
// other, and the mode changes between them.
func TestKernelSystemd(t *testing.T) {
	packages := packaged(t, "deb")
	m := newMachine(t)
	before := older(m.node, packages)
	m.boot()
	if said := m.install(before); !strings.Contains(said, "systemctl enable --now pointsman") {
		t.Errorf("dpkg does not print the next command:\n%s", said)
	}
	for _, unit := range units {
		if state := m.property(unit, "ActiveState"); state != "inactive" {
			t.Errorf("%s is %s before the host is started", unit, state)
		}
	}
	m.runInside("systemctl", "enable", hostUnit)
	m.checksBefore()
	load := m.load()
	for _, step := range []struct {
		what     string
		packages []string
	}{{"upgrade", packages}, {"downgrade", before}, {"another upgrade", packages}} {
		m.install(step.packages)
		m.waitForNewProcesses(step.what, units...)
	}
	m.reloads()
	m.expectRestarts()
	m.swap("nftables")
	m.runInside("systemctl", "restart", unitOf("nftables"))
	m.waitForNewProcess("a restart", unitOf("nftables"))
	m.swap("iptables")
	load.Done(m, "upgraded, downgraded, reloaded, crashed, swapped and restarted")
	m.relays()

	m.shutDown()
	if rules("iptables") != "" {
		t.Fatal("the kernel has rules before the machine is booted")
	}
	m.boot()
	m.waitForNewProcesses("booted again", units...)
	load = m.load()
	m.removed()
	load.Done(m, "removed")
	m.purge("iptables")
	if failed := m.runInside("systemctl", "list-units", "--failed", "--no-legend"); failed != "" {
		t.Errorf("units have failed:\n%s", failed)
	}
}

// checksBefore: with an invalid file no host starts, and the journal tells why, with the line. Once the file is valid,
// systemd tries again, and the units of the dataplanes run with the host.
func (m *machine) checksBefore() {
	m.Helper()
	m.set("iptabels", "30s")
	if said, err := m.try("systemctl", "start", hostUnit); err == nil {
		m.Errorf("the host started with an unknown mode: %s", said)
	}
	if pid := m.property(hostUnit, "MainPID"); pid != "0" {
		m.Errorf("process %s is the host's", pid)
	}
	if said := m.journal(hostUnit); !strings.Contains(said, "host.yaml: mode: there is no pointsman-dataplane-iptabels") {
		m.Errorf("the journal does not say why the host did not start:\n%s", said)
	}
	m.set("iptables", "30s")
	m.waitForNewProcesses("with a file that can work", units...)
}

// journal returns the output of a unit's processes.
func (m *machine) journal(unit string) string {
	m.Helper()
	m.runInside("journalctl", "--sync")
	return m.runInside("journalctl", "--no-pager", "--output=cat", "--unit", unit)
}

// reloads: after systemctl reload the same process uses what may change in its file.
func (m *machine) reloads() {
	m.Helper()
	m.set("iptables", "31s")
	m.runInside("systemctl", "reload", hostUnit)
	eventually.Succeeds(m, "the host has the settings", func() error {
		c, err := m.Config(m.Context())
		if err == nil && !strings.Contains(string(c.Settings), `"31s"`) {
			err = fmt.Errorf("the settings are %s", c.Settings)
		}
		return err
	})
	if said := m.journal(hostUnit); !strings.Contains(said, "changed: syncPeriod") {
		m.Errorf("the journal has no line about the reload:\n%s", said)
	}
	if pid := m.property(hostUnit, "MainPID"); pid != strconv.Itoa(m.unit[hostUnit]) {
		m.Errorf("the reload made another process, %s", pid)
	}
}

// removed removes the packages: their units end and are not started again, and what the dataplane wrote keeps serving.
func (m *machine) removed() {
	m.Helper()
	m.runInside("dpkg", "-P", "pointsman-dataplane-ipvs", "pointsman-dataplane-nftables", "pointsman-dataplane-userspace")
	m.remove("iptables")
	m.runInside("dpkg", "-r", "pointsman")
	for _, unit := range units {
		if state := m.property(unit, "ActiveState"); state != "inactive" {
			m.Errorf("%s was removed and is %s", unit, state)
		}
		if said, err := m.try("systemctl", "is-enabled", unit); err == nil {
			m.Errorf("after its package was removed, the unit %s is %s", unit, said)
		}
	}
}
