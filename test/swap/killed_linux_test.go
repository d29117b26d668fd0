// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
)

// TestKilledDuringUpdates kills the plugin again and again while it is sent many new Services, as
// when the node runs out of memory. No Service is blamed for that: each new process is sent all of
// them, readyz answers 503 until one has confirmed them, and then all are served.
func TestKilledDuringUpdates(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("needs go: it builds a plugin")
	}
	const services, kills = 300, 7
	n := bareNode(t, "slow")
	build := exec.Command("go", "build", "-o", n.path("plugins/pointsman-dataplane-slow"), "./testdata/slow")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	port := freePort(t)
	n.write("host.yaml", strings.Replace(n.settings("slow"), `healthzBindAddress: ""`, fmt.Sprintf("healthzBindAddress: 127.0.0.1:%d", port), 1))
	n.start()
	n.until("the node is ready", long, answersReadyz(port, "200"))

	n.write("plugins/gate", "")
	var all strings.Builder
	for i := range services {
		fmt.Fprintf(&all, "apiVersion: v1\nkind: Service\nmetadata: {name: s%d, namespace: shop}\nspec: {clusterIP: 172.30.%d.%d, ports: [{port: 80}]}\n---\n", i, i/250, i%250+1)
	}
	n.write("services/all.yaml", all.String())
	updating := 0
	for i := range kills {
		n.until("a process is sent the Services", long, func() error {
			pid := n.number("plugins/updating")
			if pid == updating {
				return fmt.Errorf("the last one was process %d", pid)
			}
			updating = pid
			return nil
		})
		if i > 0 { // the first process was told everything before they came
			n.until("the node is not ready", long, answersReadyz(port, "503"))
		}
		if err := syscall.Kill(updating, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(n.path("plugins/gate")); err != nil {
		t.Fatal(err)
	}
	n.until("the node is ready again", long, answersReadyz(port, "200"))
	n.until("all Services are served", long, func() error {
		s, err := n.Status(t.Context())
		if served := n.number("plugins/served"); err != nil || len(s.Unserved) > 0 || s.Sync.Pending > 0 || served != services {
			return fmt.Errorf("%d of %d Services are served, %d are unserved, sync %+v: %v", served, services, len(s.Unserved), s.Sync, err)
		}
		return nil
	})
}

// number reads a number from a file; zero: it is not there.
func (n *node) number(name string) int {
	n.Helper()
	data, err := os.ReadFile(n.path(name))
	if errors.Is(err, os.ErrNotExist) {
		return 0
	}
	number, err := strconv.Atoi(string(data))
	if err != nil {
		n.Fatal(err)
	}
	return number
}

// answersReadyz checks how an answer of readyz begins.
func answersReadyz(port int, want string) func() error {
	return func() error {
		if answer := get(port, "readyz"); !strings.HasPrefix(answer, want) {
			return fmt.Errorf("readyz answers %s, want %s", answer, want)
		}
		return nil
	}
}

// freePort is a port of the loopback address on which nothing listens.
func freePort(t *testing.T) int {
	t.Helper()
	if lo, err := netlink.LinkByName("lo"); err == nil {
		_ = netlink.LinkSetUp(lo) // in a new namespace; without root it is the machine's, and up
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// bareNode is a host without a namespace of its own, and without callers.
func bareNode(t *testing.T, mode string) *node {
	t.Helper()
	dir, err := os.MkdirTemp("", "swap")
	if err != nil {
		t.Fatal(err)
	}
	n := newClient(t, dir)
	t.Cleanup(n.close)
	n.install()
	if err := os.MkdirAll(n.path("services"), 0o755); err != nil {
		t.Fatal(err)
	}
	n.mode(mode)
	return n
}
