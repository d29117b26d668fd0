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

// The units of the form with a unit each.
const hostUnit, dataplaneUnit = "pointsman.service", "pointsman-dataplane@iptables.service"

// apart are the settings of that form, with Services from files.
const apart = settings + `
adminSocket: /run/pointsman-host/pointsman.sock
stateDir: /run/pointsman-host
syncPeriod: %s
plugins:
  iptables: {address: unix:///run/pointsman/iptables/plugin.sock}
`

// set writes them.
func (m *machine) set(mode, syncPeriod string) {
	m.Helper()
	m.configure(mode)
	m.in("chgrp", "-R", "pointsman", "/etc/pointsman")
	if err := os.WriteFile(m.path("/etc/pointsman/host.yaml"), fmt.Appendf(nil, apart, mode, syncPeriod), 0o640); err != nil {
		m.Fatal(err)
	}
}

// is is what systemd says of a unit's property.
func (m *machine) is(unit, property string) string {
	m.Helper()
	return strings.TrimSpace(m.in("systemctl", "show", "--value", "--property", property, unit))
}

// anew waits until units run by other processes than when this was last asked, and all Services are
// served.
func (m *machine) anew(what string, units ...string) {
	m.Helper()
	for _, unit := range units {
		m.another(what, unit)
	}
	m.serves("iptables")
}

// another waits until a unit runs by another process than when this was last asked.
func (m *machine) another(what, unit string) {
	m.Helper()
	eventually.Succeeds(m, what+": another process of "+unit, func() error {
		pid, err := strconv.Atoi(m.is(unit, "MainPID"))
		if state := m.is(unit, "ActiveState"); err != nil || pid == 0 || pid == m.unit[unit] || state != "active" {
			return fmt.Errorf("it is %s, with process %d, and was %d", state, pid, m.unit[unit])
		}
		m.unit[unit] = pid
		return nil
	})
}

// crashes: however often each unit's process ends, systemd starts another one.
func (m *machine) crashes() {
	m.Helper()
	for range 7 { // systemd's own limit is five in ten seconds
		m.in("systemctl", "kill", "--signal=KILL", dataplaneUnit)
		m.another("a crash", dataplaneUnit)
	}
	m.in("systemctl", "kill", "--kill-who=main", "--signal=KILL", hostUnit)
	m.anew("a crash of the host", hostUnit)
}

// TestKernelSystemd installs, upgrades, downgrades, boots, removes and purges the packages where systemd is
// process 1 and starts their units, each with the restrictions that it has: nothing that is called
// meanwhile fails.
func TestKernelSystemd(t *testing.T) {
	packages := packaged(t, "deb")[:2] // the host, and iptables
	m := newMachine(t)
	before := older(m.node, packages)
	m.boot()
	if said := m.install(before); !strings.Contains(said, "systemctl enable --now pointsman-dataplane@NAME pointsman") {
		t.Errorf("dpkg does not say what is to be done:\n%s", said)
	}
	m.in("systemctl", "enable", dataplaneUnit, hostUnit)
	m.checksBefore()
	load := m.load()
	for _, step := range []struct {
		what     string
		packages []string
	}{{"upgrade", packages}, {"downgrade", before}, {"another upgrade", packages}} {
		m.install(step.packages)
		m.anew(step.what, hostUnit, dataplaneUnit)
	}
	m.reloads()
	m.crashes()
	load.Done(m, "upgraded, downgraded, reloaded and crashed")

	m.shutDown()
	if rules("iptables") != "" {
		t.Fatal("the kernel has rules before the machine is booted")
	}
	m.boot()
	m.anew("booted again", hostUnit, dataplaneUnit)
	load = m.load()
	m.removed()
	load.Done(m, "removed")
	m.purge("iptables")
	if failed := m.in("systemctl", "list-units", "--failed", "--no-legend"); failed != "" {
		t.Errorf("units have failed:\n%s", failed)
	}
}

// checksBefore: a file that cannot work starts no host, and the journal says why, with the line. Once the
// file can work, systemd has tried again, and the host has the dataplane's unit with it, as that is enabled.
func (m *machine) checksBefore() {
	m.Helper()
	m.set("iptabels", "30s")
	if said, err := m.try("systemctl", "start", hostUnit); err == nil {
		m.Errorf("the host was started with a mode that there is not: %s", said)
	}
	if pid := m.is(hostUnit, "MainPID"); pid != "0" {
		m.Errorf("process %s is the host's", pid)
	}
	if said := m.journal(hostUnit); !strings.Contains(said, "host.yaml: mode: there is no pointsman-dataplane-iptabels") {
		m.Errorf("the journal does not say why there is no host:\n%s", said)
	}
	m.set("iptables", "30s")
	m.anew("with a file that can work", hostUnit, dataplaneUnit)
}

// journal is what a unit's processes have printed.
func (m *machine) journal(unit string) string {
	m.Helper()
	m.in("journalctl", "--sync")
	return m.in("journalctl", "--no-pager", "--output=cat", "--unit", unit)
}

// reloads: systemd's reload has the host take what is live in its file, by the same process.
func (m *machine) reloads() {
	m.Helper()
	m.set("iptables", "31s")
	m.in("systemctl", "reload", hostUnit)
	eventually.Succeeds(m, "the host has the settings", func() error {
		c, err := m.Config(m.Context())
		if err == nil && !strings.Contains(string(c.Settings), `"31s"`) {
			err = fmt.Errorf("it has %s", c.Settings)
		}
		return err
	})
	if said := m.journal(hostUnit); !strings.Contains(said, "the config file is read again") {
		m.Errorf("the journal does not have the reload:\n%s", said)
	}
	if pid := m.is(hostUnit, "MainPID"); pid != strconv.Itoa(m.unit[hostUnit]) {
		m.Errorf("the reload made another process, %s", pid)
	}
}

// removed takes the packages away: their units end and are not started again, and what the dataplane wrote
// serves on.
func (m *machine) removed() {
	m.Helper()
	m.remove("iptables")
	m.in("dpkg", "-r", "pointsman")
	for _, unit := range []string{hostUnit, dataplaneUnit} {
		if state := m.is(unit, "ActiveState"); state != "inactive" {
			m.Errorf("%s was removed and is %s", unit, state)
		}
		if said, err := m.try("systemctl", "is-enabled", unit); err == nil {
			m.Errorf("%s was removed and is %s", unit, said)
		}
	}
}
