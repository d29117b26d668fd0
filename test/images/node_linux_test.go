// SPDX-License-Identifier: Apache-2.0

package images

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pointsman/pointsman/sdk/sdktest/netns"
	"github.com/pointsman/pointsman/test/eventually"
	"github.com/pointsman/pointsman/test/traffic"
)

func TestMain(m *testing.M) { netns.Main(m) }

var (
	nodeAddr = netip.MustParseAddr("192.0.2.10")
	service  = netip.MustParseAddrPort("10.96.0.10:8080")
	backends = []netip.AddrPort{netip.MustParseAddrPort("10.244.0.1:8080"), netip.MustParseAddrPort("10.244.1.1:8080")}
	callers  = map[string]netip.Addr{"pod": netip.MustParseAddr("10.244.0.9"), "client": netip.MustParseAddr("198.18.0.7")}
)

// A node is the test's network namespace, with callers and endpoints around it.
type node struct {
	*testing.T
	dir     string // its files, and those of its machines
	testbed *netns.Testbed
	host    *netns.Host // its network
}

// newNode returns a node without processes.
func newNode(t *testing.T) *node {
	t.Helper()
	folder(t)
	if os.Getuid() != 0 {
		t.Skip("needs root: it makes network namespaces and containers")
	}
	if _, err := exec.LookPath("runc"); err != nil {
		t.Skip("needs runc: apt-get install runc")
	}
	dir, err := os.MkdirTemp("", "pm-") // a short path, for sockets
	if err != nil {
		t.Fatal(err)
	}
	n := &node{T: t, dir: dir}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil { // users in containers read its files
		t.Fatal(err)
	}
	n.testbed = traffic.Testbed(t, netns.New)
	n.host = n.testbed.Node()
	t.Cleanup(n.clearKernel)
	if err := n.testbed.Own(nodeAddr); err != nil { // it masquerades callers from outside
		t.Fatal(err)
	}
	for _, at := range backends {
		traffic.Answer(n, n.testbed, at)
	}
	return n
}

func (n *node) path(at string) string { return filepath.Join(n.dir, at) }

// clearKernel removes what a reboot removes: rules, and the files below /run.
func (n *node) clearKernel() {
	n.Helper()
	for _, command := range []string{"nft flush ruleset", "iptables-legacy -t nat -F", "iptables-legacy -t nat -X", "iptables-legacy -F", "iptables-legacy -X",
		"ip6tables-legacy -t nat -F", "ip6tables-legacy -t nat -X", "ip6tables-legacy -F", "ip6tables-legacy -X", "iptables-legacy -t mangle -F", "iptables-legacy -t mangle -X"} {
		_ = exec.Command("sh", "-c", command).Run() // not every kernel has all of them
	}
	if err := os.RemoveAll(n.path("root/run")); err != nil {
		n.Error(err)
	}
}

// load starts a pod and a client that call the Service, by new connections and on kept ones.
func (n *node) load() *traffic.Load {
	n.Helper()
	return n.loadWith(nil)
}

// loadWith is load with more callers, whose connections live for a limited time.
func (n *node) loadWith(lives func() time.Duration, more ...traffic.Caller) *traffic.Load {
	n.Helper()
	all := append(more, traffic.Callers(n, n.testbed, service, callers)...)
	l := traffic.Start(traffic.Plan{New: 2, Every: 50 * time.Millisecond, Keep: 4, Lives: lives}, all...)
	n.Cleanup(func() { l.End() })
	return l
}

// processes returns the processes of a program in the node's network.
func (n *node) processes(program string) (pids []int) {
	n.Helper()
	own, err := os.Readlink("/proc/thread-self/ns/net") // the first thread may be in another namespace now, to call
	if err != nil {
		n.Fatal(err)
	}
	found, _ := filepath.Glob("/proc/[0-9]*/exe") // the pattern is valid
	for _, exe := range found {
		at, _ := os.Readlink(exe)
		net, _ := os.Readlink(filepath.Dir(exe) + "/ns/net")
		var pid int
		if _, err := fmt.Sscanf(exe, "/proc/%d/exe", &pid); err == nil && net == own && strings.HasSuffix(at, "/"+program) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// hang stops the processes of the dataplane of a mode, and waits until others have replaced them.
func (n *node) hang(mode string) {
	n.Helper()
	program := "pointsman-dataplane-" + mode
	before := n.processes(program)
	if len(before) == 0 {
		n.Fatalf("there is no process of %s", program)
	}
	for _, pid := range before {
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			n.Fatal(err)
		}
	}
	eventually.SucceedsWithin(n, within, "a dataplane that hangs is replaced", func() error {
		now := n.processes(program)
		if len(now) == 0 || slices.ContainsFunc(before, func(pid int) bool { return slices.Contains(now, pid) }) {
			return fmt.Errorf("there are the processes %d, and were %d", now, before)
		}
		return nil
	})
}
