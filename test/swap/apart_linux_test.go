// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pointsman/pointsman/test/apart"
)

// goApart lets the host run as an ordinary user without any capability. The plugins are not its children: each runs as
// root, with the capabilities that it needs and no others, and is started again when it ends.
func (n *node) goApart() {
	n.Helper()
	n.kept = make(map[string]*apart.Keeper)
	for path := n.dir; path != os.TempDir() && path != "/"; path = filepath.Dir(path) {
		if err := errors.Join(os.Chmod(path, 0o755), apart.Give(path)); err != nil {
			n.Fatal(err)
		}
	}
	for _, p := range n.plugins() {
		k, err := apart.Keep(p, n.begin)
		if err != nil {
			n.Fatalf("%v: %s", err, n.read("host.log"))
		}
		n.kept[p.Name] = k
	}
}

// stopPlugins ends the plugins that goApart has started.
func (n *node) stopPlugins() {
	n.Helper()
	for _, k := range n.kept {
		if err := k.Stop(); err != nil {
			n.Error(err)
		}
	}
}

// plugins returns the plugins of a host that runs apart. Their sockets are below a folder of root's.
func (n *node) plugins() (all []apart.Plugin) {
	tables, _ := os.ReadFile("/proc/net/ip_tables_names") // of earlier tests in this namespace
	legacy := len(tables) > 0 || strings.Contains(n.Name(), "Legacy")
	for _, name := range modes {
		all = append(all, apart.Plugin{Name: name, Binary: n.path("plugins/pointsman-dataplane-" + name), Socket: n.path("plugins/" + name + "/s"), Legacy: legacy})
	}
	return all
}

// pluginSettings returns the settings of the plugins: their options and, if the host runs apart, their addresses.
func (n *node) pluginSettings() string {
	if n.kept == nil && n.options == "" && n.protect == "" {
		return ""
	}
	text := "plugins:\n"
	for _, p := range n.plugins() {
		address, options := "", n.options
		if p.Name == "nftables" {
			options = n.protect
		}
		if n.kept != nil {
			address = p.Address()
		}
		text += fmt.Sprintf("  %s: {address: %q, options: {%s}}\n", p.Name, address, options)
	}
	return text
}

// needsLaunchedPlugins skips a test that is about a host's children if all hosts run apart.
func (n *node) needsLaunchedPlugins() {
	n.Helper()
	if apart.Asked() {
		n.Skip("is about plugins that the host starts: without POINTSMAN_APART it runs")
	}
}

// update changes the node's Services, and waits until the change is served.
func (n *node) update(round int) {
	n.Helper()
	n.write("services/more.yaml", storm(round))
	n.until("the change is known", func() error { return n.knowsAddr(fmt.Sprintf("172.30.2.%d", round%200+1)) })
	n.waitForSync()
}

// newApart is newNode with a host that runs apart.
func newApart(t *testing.T, mode string) *node {
	n := newNode(t, mode)
	if n.kept == nil {
		n.goApart()
	}
	n.writeMode(mode)
	return n
}

// TestKernelApartWithoutFacts: a host that finds no files of its predecessor, as in a new pod, starts with the mode
// whose rules the kernel has, and swaps from there to the mode of the config file. If the predecessor ended while a
// mode drained, the kernel has rules of two modes at first, and in the end only those of the configured mode.
func TestKernelApartWithoutFacts(t *testing.T) {
	n := newApart(t, "iptables")
	n.start()
	l := n.newLoad()
	anew := func(mode string) {
		t.Helper()
		n.end(syscall.SIGTERM)
		if err := os.Remove(n.path("state/mode.json")); err != nil {
			t.Fatal(err)
		}
		n.writeMode(mode)
		n.exec(n.host())
		n.waitForMode(mode)
		n.update(len(mode)) // any number but the predecessor's
	}
	anew("nftables")
	anew("iptables")
	n.expectNothingLeft("nftables")
	before := n.drain
	n.drain = time.Hour
	n.writeMode("nftables")
	n.until("iptables drains", func() error { // the connections of the load
		m, err := n.Mode(t.Context())
		if err == nil && (m.Swap == nil || m.Swap.From != "iptables" || m.Swap.Stage != "draining") {
			err = fmt.Errorf("mode %s, swap %+v", m.Mode, m.Swap)
		}
		return err
	})
	n.drain = before
	anew("iptables")
	n.until("nftables is cleaned up", func() error {
		text, err := os.ReadFile(n.path("state/mode.json"))
		if err == nil && strings.Contains(string(text), `"left"`) {
			err = fmt.Errorf("the host has written down %s", text)
		}
		return err
	})
	n.expectNothingLeft("nftables")
	l.done("new hosts that know nothing of those before")
}

// TestKernelSecondHost starts two hosts with the same plugin. The later one gets it; the first, stopped meanwhile, is
// fenced when it continues, and leaves the plugin alone.
func TestKernelSecondHost(t *testing.T) {
	a := newApart(t, "iptables")
	a.start()
	l := a.newLoad()
	if err := a.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	b := newClient(t, a.path("second"))
	b.kept = a.kept
	b.write("host.yaml", strings.NewReplacer("path: services", "path: ../services").Replace(a.read("host.yaml")))
	b.write("pointsman", a.read("pointsman"))
	if err := errors.Join(os.Chmod(b.path("pointsman"), 0o755), apart.Give(b.dir)); err != nil {
		t.Fatal(err)
	}
	b.start()
	if err := a.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	a.write("services/more.yaml", storm(8))
	a.until("the first host finds itself fenced", func() error {
		s, err := a.Status(t.Context())
		if err == nil && (s.Dataplane.State != "refused" || !strings.Contains(s.Dataplane.Why, "another host")) {
			err = fmt.Errorf("%+v", s.Dataplane)
		}
		return err
	})
	for round := range 3 { // a chance for the first host to take the plugin back
		a.write("services/more.yaml", storm(9+round))
		b.until("the second host has confirmed the change", func() error {
			out, err := b.verb("service", "list")
			if s, failed := b.Status(t.Context()); failed != nil || s.Sync.Pending > 0 || s.Dataplane.Restarts > 0 {
				return fmt.Errorf("%+v, %+v, %w", s.Dataplane, s.Sync, failed)
			}
			return errors.Join(err, lacks(out, fmt.Sprintf("172.30.2.%d", 10+round)))
		})
	}
	if s, err := a.Status(t.Context()); err != nil || s.Dataplane.State != "refused" {
		t.Errorf("the first host: %+v: %v", s.Dataplane, err)
	}
	b.end(syscall.SIGTERM)
	l.done("two hosts and one plugin")
}

func (n *node) read(name string) string {
	n.Helper()
	data, err := os.ReadFile(n.path(name))
	if err != nil {
		n.Fatal(err)
	}
	return string(data)
}
