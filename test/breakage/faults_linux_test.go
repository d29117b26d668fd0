// SPDX-License-Identifier: Apache-2.0

package breakage

import (
	"os/signal"
	"slices"
	"syscall"
	"time"
)

// faults are all of them.
var faults = slices.Concat(ofProcesses, ofSwaps, ofFiles, ofState, ofOthers)

// ofProcesses are those of host and plugin.
var ofProcesses = []fault{
	{name: "plugin-killed", do: pluginKilled},
	{name: "plugin-stopped", do: pluginStopped},
	{name: "plugin-restarted", do: pluginRestarted},
	{name: "plugin-gone", do: pluginGone},
	{name: "host-killed", do: func(n *node) { n.again(syscall.SIGKILL, nothing) }},
	{name: "host-hung-up", can: hangsUp, do: func(n *node) { n.again(syscall.SIGHUP, nothing) }},
	{name: "host-terminated", do: func(n *node) { n.again(syscall.SIGTERM, nothing) }},
	{name: "host-interrupted", do: func(n *node) { n.again(syscall.SIGINT, nothing) }},
	{name: "host-and-plugin-killed", do: bothKilled},
	{name: "host-stopped", do: hostStopped},
}

func nothing() {}

// hangsUp reports whether a hangup ends the programs that this one starts: below nohup they
// ignore it, and a host does so on purpose.
func hangsUp(*node) bool { return !signal.Ignored(syscall.SIGHUP) }

// pluginKilled kills the plugin. The next one serves, and its restart is reported.
func pluginKilled(n *node) {
	n.kill(n.mode, syscall.SIGKILL)
	n.shows(soon, warning("W002", "was restarted"), metric(`pointsman_plugin_restarts_total{plugin="`+n.mode+`"}`, some))
}

// pluginStopped stops the plugin's process, which is found to hang, and replaced.
func pluginStopped(n *node) {
	n.kill(n.mode, syscall.SIGSTOP)
	n.shows(soon, warned("W001", "W002"))
	n.shows(soon, warning("W002", "was restarted"))
}

// pluginRestarted asks for a restart, of a binary that is another file.
func pluginRestarted(n *node) {
	before := n.plugins(n.mode)
	n.install(plugin(n.mode), "plugins/"+plugin(n.mode))
	if out, err := n.verb("plugin", "restart", n.mode); err != nil {
		n.Errorf("plugin restart: %v: %s", err, out)
	}
	n.within(long, "another process serves", func() error {
		s, err := n.Status(n.Context())
		if err == nil && slices.Contains(before, s.Dataplane.PID) {
			err = n.served()
		}
		return err
	})
}

// pluginGone has a plugin that cannot be started: what it is owed is reported, the probe
// of readiness fails at once and that of health when a change is late. Rules serve on.
func pluginGone(n *node) {
	n.write("plugins/"+plugin(n.mode), "#!/bin/sh\nexit 3\n")
	n.must("chmod", "755", n.path("plugins/"+plugin(n.mode)))
	began := time.Now() // with the process everything is owed, before the change is
	n.kill(n.mode, syscall.SIGKILL)
	n.write("services/owed.yaml", service{Index: most, Endpoints: backends}.manifest())
	n.shows(soon, warning("W001", ""), metric(`pointsman_plugin_up{plugin="`+n.mode+`"}`, zero), probe("readyz", 503))
	n.shows(soon, probe("healthz", 503))
	if took := time.Since(began); took < 2*syncPeriod {
		n.Errorf("healthz is 503 after %s, before a change was late", took)
	}
	n.must("rm", n.path("services/owed.yaml"))
	n.install(plugin(n.mode), "plugins/"+plugin(n.mode))
}

// again ends the host by a signal, changes Services and does more while there is none, and
// starts the next one.
func (n *node) again(sig syscall.Signal, meanwhile func()) {
	n.Helper()
	if len(n.plugins("userspace")) > 0 { // it ends with its host
		n.relayGone()
	}
	n.end(sig)
	n.churn(n.IntN(3))
	meanwhile()
	time.Sleep(time.Duration(n.IntN(1000)) * time.Millisecond)
	n.begin()
}

// bothKilled kills host and plugin, as a lack of memory may do.
func bothKilled(n *node) {
	n.again(syscall.SIGKILL, func() { n.kill(n.mode, syscall.SIGKILL) })
}

// hostStopped stops the host for a while, as a debugger does.
func hostStopped(n *node) {
	_ = n.cmd.Process.Signal(syscall.SIGSTOP)
	n.churn(n.IntN(3))
	time.Sleep(time.Duration(1+n.IntN(3000)) * time.Millisecond)
	_ = n.cmd.Process.Signal(syscall.SIGCONT)
}
