// SPDX-License-Identifier: Apache-2.0

package packages

import (
	"context"
	"errors"
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

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/sdk/sdktest/netns"
	"github.com/pointsman/pointsman/test/eventually"
	"github.com/pointsman/pointsman/test/traffic"
)

func TestMain(m *testing.M) { netns.Main(m) }

// release returns the folder that make release wrote.
func release(t testing.TB) string {
	t.Helper()
	dir := os.Getenv("POINTSMAN_RELEASE")
	if dir == "" {
		t.Skip("needs what make release makes, in the folder POINTSMAN_RELEASE; try: make test-packages")
	}
	return dir
}

const settings = `apiVersion: pointsman.dev/v1alpha1
kind: HostConfig
mode: %s
source: {files: {path: services}}
detectLocal: {clusterCIDRs: [10.180.0.0/24]}
healthzBindAddress: ""
metricsBindAddress: ""
oomScoreAdj: 0
linux: {conntrack: {maxPerCore: 0}}
`

const manifest = `
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec:
  clusterIP: 172.30.0.10
  ports: [{port: 8080, protocol: TCP}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: shop, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{port: 8080, protocol: TCP}]
endpoints: [{addresses: [10.180.0.1]}, {addresses: [10.180.1.1]}]
`

var (
	nodeAddr = netip.MustParseAddr("192.0.2.10")
	service  = netip.MustParseAddrPort("172.30.0.10:8080")
	backends = []netip.AddrPort{netip.MustParseAddrPort("10.180.0.1:8080"), netip.MustParseAddrPort("10.180.1.1:8080")}
	callers  = map[string]netip.Addr{"pod": netip.MustParseAddr("10.180.0.9"), "client": netip.MustParseAddr("198.18.0.7")}
)

// A node is a Debian in a folder. Its network is the test's namespace.
type node struct {
	*testing.T
	*admin.Client
	root    string
	enter   []string // how programs of the node are run
	testbed *netns.Testbed
}

// newNode returns a node with the programs that dataplanes call, but none of ours. Nothing runs on it.
func newNode(t *testing.T) *node {
	t.Helper()
	n := unpacked(t)
	for kind, at := range map[string]string{"proc": "/proc", "sysfs": "/sys"} { // as in this namespace
		if err := syscall.Mount(kind, n.path(at), kind, 0, ""); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

// unpacked returns a node that has only its files and the network.
func unpacked(t *testing.T) *node {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root: it makes network namespaces and a Debian below a folder")
	}
	debian := filepath.Join(release(t), "..", "release", "debian.tar")
	n := &node{T: t, root: filepath.Join(t.TempDir(), "debian"), testbed: traffic.Testbed(t, netns.New)}
	n.enter = []string{"chroot", n.root}
	n.Client = admin.NewClient(n.path("/run/pointsman/pointsman.sock"))
	t.Cleanup(n.close)
	if err := os.Mkdir(n.root, 0o755); err != nil {
		t.Fatal(err)
	}
	n.run("tar", "-C", n.root, "--numeric-owner", "-xpf", debian)
	if err := n.testbed.Own(nodeAddr); err != nil { // it masquerades callers from outside
		t.Fatal(err)
	}
	for _, at := range backends {
		traffic.Answer(n, n.testbed, at)
	}
	return n
}

// close removes what other file systems hold of the node's folder.
func (n *node) close() {
	for _, at := range []string{"/proc", "/sys"} {
		if err := syscall.Unmount(n.path(at), syscall.MNT_DETACH); err != nil && !errors.Is(err, syscall.EINVAL) {
			n.Error(err)
		}
	}
}

func (n *node) path(at string) string { return filepath.Join(n.root, at) }

// run runs a program of this machine, which must succeed, and returns all its output.
func (n *node) run(words ...string) string {
	n.Helper()
	ctx, cancel := context.WithTimeout(n.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C")
	out, err := cmd.CombinedOutput()
	if err != nil {
		n.Fatalf("%s: %v: %s", strings.Join(words, " "), err, out)
	}
	return string(out)
}

// runInside does the same with a program of the node.
func (n *node) runInside(words ...string) string {
	n.Helper()
	return n.run(slices.Concat(n.enter, words)...)
}

// file returns the content of a file of the node.
func (n *node) file(at string) string {
	n.Helper()
	text, err := os.ReadFile(n.path(at))
	if err != nil {
		n.Fatal(err)
	}
	return string(text)
}

// configure writes the settings, and the Services that they refer to.
func (n *node) configure(mode string) {
	n.Helper()
	dir := n.path("/etc/pointsman")
	if err := errors.Join(os.MkdirAll(dir+"/services", 0o755), os.WriteFile(dir+"/services/web.yaml", []byte(manifest), 0o644),
		os.WriteFile(dir+"/host.yaml", fmt.Appendf(nil, settings, mode), 0o640)); err != nil {
		n.Fatal(err)
	}
}

// serves waits until a mode serves everything and no swap is in progress, and returns its process.
func (n *node) serves(mode string) (pid int) {
	n.Helper()
	eventually.SucceedsWithin(n, 2*time.Minute, mode+" serves", func() error {
		s, err := n.Status(n.Context())
		if err == nil && (s.Mode != mode || s.Swap != nil || s.Sync.Pending > 0 || s.Sync.Served == 0 || s.Dataplane.Role != "active") {
			err = fmt.Errorf("mode %s, swap %+v, sync %+v, dataplane %+v", s.Mode, s.Swap, s.Sync, s.Dataplane)
		}
		pid = s.Dataplane.PID
		return err
	})
	return pid
}

// load starts a pod and a client that call the Service, by new connections and on kept ones.
func (n *node) load() *traffic.Load {
	n.Helper()
	l := traffic.Start(traffic.Plan{New: 2, Every: 20 * time.Millisecond, Keep: 8}, traffic.Callers(n, n.testbed, service, callers)...)
	n.Cleanup(func() { l.End() })
	return l
}
