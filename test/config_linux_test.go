// SPDX-License-Identifier: Apache-2.0

package test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
)

// TestWrongConfig does not start with a file that cannot be meant.
func TestWrongConfig(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	for _, tc := range []struct{ name, text, says string }{
		{"unknown field", s.text("sycnPeriod: 1s\n"), "sycnPeriod: unknown field; try: "},
		{"wrong type", s.text("bindAddressHardFail: 7\n"), "host.yaml: bindAddressHardFail:"},
		{"empty", "", "host.yaml"},
		{"no YAML", "mode: [", "host.yaml"},
		{"an option's name", strings.Replace(s.text(""), "redirect:", "redirct:", 1), "host.yaml: plugins.userspace.options"},
		{"an option's value", strings.Replace(s.text(""), "redirect: never", "redirect: nevr", 1), "host.yaml: plugins.userspace.options.redirect: "},
		{"two at once", s.text("mod: x\nlogging: {level: loud}\n"), "logging.level"},
	} {
		s.write("host.yaml", tc.text)
		for _, verb := range [][]string{{"run"}, {"config", "validate", s.path("host.yaml")}} {
			if got := s.verb(verb...); got.code != 1 || !strings.Contains(got.err+got.out, tc.says) {
				t.Errorf("%s: %s says %+v, want %q", tc.name, verb, got, tc.says)
			}
		}
	}
	if _, err := os.Stat(s.path("state/plugins")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a plugin was started: %v", err)
	}
	s.remove("host.yaml")
	if got := s.verb("run"); got.code != 1 || !strings.Contains(got.err, "host.yaml") {
		t.Errorf("without the file run says %+v", got)
	}
}

// TestUnreadableConfig is the same for a file that may not be read.
func TestUnreadableConfig(t *testing.T) {
	t.Parallel()
	if os.Getuid() == 0 {
		t.Skip("needs a user other than root, who may read every file")
	}
	s := newSystem(t)
	if err := os.Chmod(s.path("host.yaml"), 0); err != nil {
		t.Fatal(err)
	}
	if got := s.verb("run"); got.code != 1 || !strings.Contains(got.err, "permission denied") {
		t.Errorf("run says %+v", got)
	}
}

// TestConfigFollowed changes the file under a running host.
func TestConfigFollowed(t *testing.T) {
	t.Parallel()
	s := begun(t)
	pid := s.plugin()
	stale := func(part string) {
		t.Helper()
		s.until("status says what is wrong with the file", func() error { return s.warning("W005", part) })
	}
	fresh := func() {
		t.Helper()
		s.until("status has forgotten it", func() error { return s.noWarning("W005") })
	}
	good := s.text("")

	s.write("host.yaml", s.text("sycnPeriod: 1s\n"))
	stale("sycnPeriod")
	s.logged("sycnPeriod")
	if got := s.verb("status", "--admin-socket", s.path("admin.sock")); got.code != 2 || !strings.Contains(got.out, "W005") {
		t.Errorf("status says %+v", got)
	}
	s.write("host.yaml", good)
	fresh()

	s.remove("host.yaml")
	stale("no such file")
	s.write("host.yaml", good)
	fresh()

	s.write("host.yaml", "")
	stale("")
	s.write("host.yaml", good)
	fresh()

	if os.Getuid() != 0 { // who may read every file
		if err := os.Chmod(s.path("host.yaml"), 0); err != nil {
			t.Fatal(err)
		}
		stale("permission denied")
		s.write("host.yaml", good)
		fresh()
	}

	if strings.Contains(s.log(), "[DEBUG]") {
		t.Error("there is a line at debug level, and the level is info")
	}
	s.write("host.yaml", s.text("logging: {level: debug}\n"))
	s.logged("config taken", "changed: logging.level")
	s.manifest("web.yaml", tcpService("web", "NET.10", 18080, "NET.101", "NET.102"))
	s.logged("[DEBUG]", "update confirmed")
	s.write("host.yaml", good)

	s.write("host.yaml", s.text("hostnameOverride: other\n"))
	s.until("status says what waits for a restart", func() error { return s.warning("W006", "hostnameOverride") })
	s.write("host.yaml", good)
	s.until("status has forgotten it", func() error { return s.noWarning("W006") })

	s.served("tcp", s.net+"10:18080")
	if now := s.plugin(); now != pid {
		t.Errorf("all this had the plugin started anew")
	}
}

// TestOptionsFollowed changes the options of the plugin that serves: another process takes over with
// them, and what the plugin refuses changes nothing.
func TestOptionsFollowed(t *testing.T) {
	t.Parallel()
	s := begun(t)
	s.served("tcp", s.net+"10:18080")
	pid := s.plugin()
	with := func(options string) { s.write("host.yaml", strings.Replace(s.text(""), "redirect: never", options, 1)) }
	for options, says := range map[string]string{
		"redirect: never, udpIdleTimeout: soon": "host.yaml: plugins.userspace.options.udpIdleTimeout: ",
		"redirect: auto":                        "host.yaml: plugins.userspace.options.redirect: cannot change while userspace serves",
	} {
		with(options)
		s.until("status says what is wrong", func() error { return s.warning("W005", says) })
		if now := s.plugin(); now != pid {
			t.Errorf("%s: process %d serves, not %d", options, now, pid)
		}
	}
	with("redirect: never, udpIdleTimeout: 1m")
	s.until("another process serves", func() error {
		st, err := s.Status(t.Context())
		if err == nil && (st.Dataplane.PID == pid || st.Dataplane.PID == 0 || st.Dataplane.State != "serving" || st.Swap != nil) {
			err = fmt.Errorf("%+v, %+v", st.Dataplane, st.Swap)
		}
		return err
	})
	s.until("the file is in force", func() error { return errors.Join(s.noWarning("W005"), s.noWarning("W006")) })
	s.served("tcp", s.net+"10:18080")
	s.logged("config taken", "changed: plugins.userspace.options")
}

// TestHangup: at SIGHUP the file is read at once, and the log says what came of that; nothing ends.
func TestHangup(t *testing.T) {
	t.Parallel()
	s := begun(t)
	pid := s.plugin()
	hangup := func(said ...string) {
		t.Helper()
		if err := s.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		s.logged(said...)
	}
	hangup("config taken", "nothing changed")
	s.write("host.yaml", s.text("sycnPeriod: 1s\n"))
	hangup("config refused", "sycnPeriod", "the settings stay as they were")
	s.write("host.yaml", s.text("logging: {level: debug}\n"))
	hangup("config taken", "changed: logging.level")
	s.served("tcp", s.net+"10:18080")
	if now := s.plugin(); now != pid {
		t.Errorf("process %d serves after a reload, not %d", now, pid)
	}
}

// TestNodePortsFollowed moves node ports from one address of the node to another, by
// an edit of the config.
func TestNodePortsFollowed(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	backend(t, at(s.net+"101"))
	s.manifest("node.yaml", `apiVersion: v1
kind: Node
metadata: {name: n1}
status: {addresses: [{type: InternalIP, address: NET.5}, {type: InternalIP, address: NET.6}]}
`)
	s.manifest("web.yaml", strings.NewReplacer("spec:", "spec:\n  type: NodePort", "port: 18080,", "port: 18080, nodePort: 30999,").
		Replace(tcpService("web", "NET.10", 18080, "NET.101")))
	at := func(last string) { s.config("hostnameOverride: n1\nnodePortAddresses: [" + s.net + last + "/32]\n") }
	only := func(yes, no string) {
		t.Helper()
		s.served("tcp", s.net+yes+":30999")
		s.until("nothing answers at "+s.net+no, func() error {
			if from, err := ask("tcp", s.net+no+":30999"); err == nil {
				return fmt.Errorf("answered by %s", from)
			}
			return nil
		})
	}
	at("5")
	s.start()
	only("5", "6")
	at("6")
	only("6", "5")
	s.served("tcp", s.net+"10:18080")
}

// TestPeriodsFollowed has changes wait for a long minSyncPeriod, and go when it is
// short again.
func TestPeriodsFollowed(t *testing.T) {
	t.Parallel()
	s := begun(t)
	patient := strings.NewReplacer("minSyncPeriod: 20ms", "minSyncPeriod: 10m", "syncPeriod: 2s", "syncPeriod: 10m")
	s.write("host.yaml", patient.Replace(s.text("")))
	s.logged("config taken", "minSyncPeriod")
	n := 20
	s.until("a change waits", func() error {
		n++
		s.manifest("web.yaml", tcpService("web", fmt.Sprintf("NET.%d", n), 18080, "NET.101"))
		st, err := s.Status(t.Context())
		if err == nil && st.Sync.Pending == 0 {
			err = errors.New("everything is confirmed")
		}
		return err
	})
	if from, err := ask("tcp", fmt.Sprintf("%s%d:18080", s.net, n)); err == nil {
		t.Errorf("a change that waits is served by %s", from)
	}
	s.config("")
	s.served("tcp", fmt.Sprintf("%s%d:18080", s.net, n))
}

// TestFlagsAndEnvironment go before the file.
func TestFlagsAndEnvironment(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	backend(t, at(s.net+"101"))
	if err := os.Rename(s.path("services"), s.path("others")); err != nil {
		t.Fatal(err)
	}
	s.write("others/web.yaml", tcpService("web", s.net+"10", 18080, s.net+"101"))
	s.start("--files", s.path("others"), "--log-level", "debug", "--log-format", "json", "--state-dir", s.path("state"))
	s.served("tcp", s.net+"10:18080")
	s.logged(`"@level":"info"`, `"@message":"host begins"`)
	show := s.verb("config", "show")
	if show.code != 0 || !strings.Contains(show.out, "services") {
		t.Errorf("config show says %+v", show)
	}
	if st, err := s.Status(t.Context()); err != nil || !strings.Contains(st.Source, "others") {
		t.Errorf("the source is %s: %v", st.Source, fmt.Sprint(err))
	}
}
