// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The user and group that the host runs as where it runs apart from its plugins.
const nobody = 65532

// An apart is a node whose host is an ordinary user without any capability. Its
// plugins are not its children: each runs by itself, as root with the capabilities
// that it needs and no others.
type apart struct {
	*node
	plugins map[string]*exec.Cmd
}

// capabilities are what each plugin has.
var capabilities = map[string]string{
	"iptables":  "+net_admin",
	"userspace": "+net_admin,+net_bind_service",
}

// newApart makes the node and starts its plugins, but not its host.
func newApart(t *testing.T, mode string) *apart {
	a := &apart{node: newNode(t, mode), plugins: map[string]*exec.Cmd{}}
	for path := a.dir; path != os.TempDir() && path != "/"; path = filepath.Dir(path) {
		if err := errors.Join(os.Chmod(path, 0o755), os.Chown(path, nobody, nobody)); err != nil {
			t.Fatal(err)
		}
	}
	a.mode(mode)
	t.Cleanup(func() {
		for name := range a.plugins {
			a.kill(name)
		}
	})
	for name := range capabilities {
		a.plug(name)
	}
	return a
}

// mode writes the config file, with the plugins' addresses.
func (a *apart) mode(mode string) {
	a.Helper()
	text := fmt.Sprintf(settings, mode, a.drain) + "plugins:\n"
	for name := range capabilities {
		text += fmt.Sprintf("  %s: {address: 'unix://%s'}\n", name, a.socket(name))
	}
	a.write("host.yaml", text)
}

// socket is below a folder that is root's.
func (a *apart) socket(name string) string { return a.path("plugins/" + name + "/s") }

// plug starts a plugin by itself, as systemd or the kubelet would.
func (a *apart) plug(name string) {
	a.Helper()
	cmd := exec.Command("setpriv", "--regid="+fmt.Sprint(nobody), "--clear-groups", "--bounding-set=-all,"+capabilities[name], "--inh-caps=-all", "--no-new-privs",
		a.path("plugins/pointsman-dataplane-"+name), "--listen", "unix://"+a.socket(name), "--allow-uid", fmt.Sprint(nobody))
	log, err := os.OpenFile(a.path("host.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		a.Fatal(err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		a.Fatal(err)
	}
	a.plugins[name] = cmd
	a.until(name+" listens", long, func() error {
		conn, err := net.Dial("unix", a.socket(name))
		if err == nil {
			conn.Close()
		}
		return err
	})
}

// kill ends a plugin the hard way.
func (a *apart) kill(name string) {
	if cmd := a.plugins[name]; cmd != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		delete(a.plugins, name)
	}
}

// begin starts the host, and sees that it can do nothing to the node.
func (a *apart) begin() {
	a.Helper()
	a.run(exec.Command("setpriv", "--reuid="+fmt.Sprint(nobody), "--regid="+fmt.Sprint(nobody), "--clear-groups",
		"--bounding-set=-all", "--inh-caps=-all", "--no-new-privs", a.path("pointsman"), "run", "--config", a.path("host.yaml")))
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", a.cmd.Process.Pid))
	if err != nil {
		a.Fatal(err)
	}
	for _, want := range []string{"Uid:\t65532\t65532\t65532\t65532", "CapPrm:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1"} {
		if !strings.Contains(string(status), want+"\n") {
			a.Fatalf("the host does not have %q:\n%s", want, status)
		}
	}
}

// updated changes the node's Services, and waits until that is served.
func (a *apart) updated(round int) {
	a.Helper()
	a.write("services/more.yaml", fmt.Sprintf(storm, round%200+1, round%250+1, round%250+2))
	a.until("the change is confirmed", long, func() error {
		s, err := a.Status(a.Context())
		if err == nil && (s.Services.Services < 2 || s.Sync.Pending > 0) {
			err = fmt.Errorf("%d Services, sync %+v", s.Services.Services, s.Sync)
		}
		return err
	})
}

// TestKernelApart lives through what the other tests live through, with a host that
// may do nothing, under load: changes, deaths of either side, and swaps. Rules serve
// on without the plugin that wrote them; connections through a relay end with it.
func TestKernelApart(t *testing.T) {
	a := newApart(t, "iptables")
	a.begin()
	l := a.newLoad()
	a.updated(1)

	a.kill("iptables")
	a.plug("iptables")
	a.until("the next process serves", long, func() error {
		s, err := a.Status(t.Context())
		if err == nil && (s.Dataplane.PID != a.plugins["iptables"].Process.Pid || s.Sync.Pending > 0) {
			err = fmt.Errorf("%+v", s.Dataplane)
		}
		return err
	})
	a.updated(2)

	for round, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM, syscall.SIGINT} {
		if err := a.cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		a.gone(long)
		a.begin()
		a.updated(3 + round)
		if s, err := a.Status(t.Context()); err != nil || s.Dataplane.PID != a.plugins["iptables"].Process.Pid {
			t.Errorf("after %s, the host serves by %+v: %v", sig, s.Dataplane, err)
		}
	}

	a.swapTo("userspace")
	a.settled("userspace")
	a.updated(7)
	a.swapTo("iptables")
	a.settled("iptables")
	l.done("a host without privileges")
}

// TestKernelSecondHost has two hosts that both mean to serve by one plugin. The one
// that came last has it; the first, stopped meanwhile, finds itself fenced when it is
// revived, and leaves it alone.
func TestKernelSecondHost(t *testing.T) {
	a := newApart(t, "iptables")
	a.begin()
	l := a.newLoad()
	if err := a.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	b := &apart{node: newClient(t, a.path("second")), plugins: a.plugins}
	b.write("host.yaml", strings.NewReplacer("path: services", "path: ../services").Replace(a.read("host.yaml")))
	b.write("pointsman", a.read("pointsman"))
	if err := errors.Join(os.Chmod(b.path("pointsman"), 0o755), os.Chown(b.dir, nobody, nobody)); err != nil {
		t.Fatal(err)
	}
	b.begin()
	if err := a.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	a.write("services/more.yaml", fmt.Sprintf(storm, 9, 9, 10))
	a.until("the first host finds itself fenced", long, func() error {
		s, err := a.Status(t.Context())
		if err == nil && (s.Dataplane.State != "refused" || !strings.Contains(s.Dataplane.Why, "another host")) {
			err = fmt.Errorf("%+v", s.Dataplane)
		}
		return err
	})
	time.Sleep(2 * time.Second) // in which it could take the plugin back
	b.until("the second host has confirmed all", long, func() error {
		s, err := b.Status(t.Context())
		if err == nil && (s.Dataplane.State != "serving" || s.Sync.Pending > 0) {
			err = fmt.Errorf("%+v, %+v", s.Dataplane, s.Sync)
		}
		return err
	})
	if s, err := b.Status(t.Context()); err != nil || s.Dataplane.Restarts > 0 {
		t.Errorf("the second host: %+v: %v", s.Dataplane, err)
	}
	_ = b.cmd.Process.Signal(syscall.SIGTERM)
	b.gone(long)
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
