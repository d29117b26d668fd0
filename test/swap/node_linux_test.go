// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/sdk/sdktest/netns"
	"github.com/pointsman/pointsman/test/apart"
	"github.com/pointsman/pointsman/test/eventually"
)

func TestMain(m *testing.M) { netns.Main(tidy{m}) }

// tidy removes what the tests built.
type tidy struct{ *testing.M }

func (t tidy) Run() int {
	code := t.M.Run()
	if programs.dir != "" {
		_ = os.RemoveAll(programs.dir)
	}
	return code
}

// The addresses of the world. The virtual address is the node's own too, so that a relay without root can listen on it.
var (
	nodeAddr = netip.MustParseAddr("192.0.2.10")
	vip      = netip.MustParseAddr("172.30.0.10")
	pod      = netip.MustParseAddr("10.180.0.9")
	client   = netip.MustParseAddr("198.18.0.7")
	backends = []netip.Addr{netip.MustParseAddr("10.180.0.1"), netip.MustParseAddr("10.180.1.1")}
)

const (
	port     = 8080
	nodePort = 30080
)

const manifest = `
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec:
  type: NodePort
  clusterIP: 172.30.0.10
  ports:
  - {name: tcp, port: 8080, nodePort: 30080, protocol: TCP}
  - {name: udp, port: 8080, nodePort: 30080, protocol: UDP}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: shop, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: tcp, port: 8080, protocol: TCP}, {name: udp, port: 8080, protocol: UDP}]
endpoints: [{addresses: [10.180.0.1]}, {addresses: [10.180.1.1]}]
`

// service returns the manifests of a Service with one TCP port, and of its endpoints. spec is added to the Service's.
func service(name, clusterIP, spec string, port int, endpoints ...string) string {
	text := fmt.Sprintf("apiVersion: v1\nkind: Service\nmetadata: {name: %s, namespace: shop}\nspec: {clusterIP: %q, ports: [{name: tcp, port: %d}]%s}\n---\n", name, clusterIP, port, spec)
	family := "IPv4"
	if strings.Contains(clusterIP, ":") {
		family = "IPv6"
	}
	text += fmt.Sprintf("apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: %[1]s-1, namespace: shop, labels: {kubernetes.io/service-name: %[1]s}}\n"+
		"addressType: %s\nports: [{name: tcp, port: %d}]\nendpoints:\n", name, family, port)
	for _, ep := range endpoints {
		text += fmt.Sprintf("- addresses: [%q]\n", ep)
	}
	return text + "---\n"
}

// storm returns the manifests of a Service whose address and endpoints depend on i.
func storm(i int) string {
	return service("storm", fmt.Sprintf("172.30.2.%d", i%200+1), "", 80, fmt.Sprintf("10.180.3.%d", i%250+1), fmt.Sprintf("10.180.4.%d", i%250+2))
}

const settings = `apiVersion: pointsman.dev/v1alpha1
kind: HostConfig
mode: %s
source: {files: {path: services}}
minSyncPeriod: 20ms
syncPeriod: 2s
detectLocal: {clusterCIDRs: [10.180.0.0/24]}
adminSocket: admin.sock
stateDir: state
healthzBindAddress: ""
metricsBindAddress: ""
oomScoreAdj: 0
pluginDirs: [plugins]
swap: {drainTimeout: %s, holdTimeout: 2m}
linux: {conntrack: {maxPerCore: 0}}
`

// A node is a host with its plugins in a namespace, and its callers.
type node struct {
	*testing.T
	*admin.Client
	dir     string
	drain   time.Duration // drain timeout
	more    string        // in the config file
	options string        // of every plugin that runs the programs of iptables
	protect string        // of nftables
	probed  bool          // the host serves probes and metrics
	testbed *netns.Testbed

	cmd    *exec.Cmd
	exited <-chan struct{}

	kept map[string]*apart.Keeper // the plugins of a host that runs apart; nil: the host launches them
}

// long limits waits for what takes seconds on an idle machine.
const long = 3 * time.Minute

// streamsLast is the time for which the node remembers a flow of datagrams, which has no visible end. A dataplane that
// drains waits for it.
const streamsLast = 2 * time.Second

// newNode starts a node that serves with mode. It skips the test without root.
func newNode(t *testing.T, mode string) *node {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root: it makes network namespaces and writes rules")
	}
	testbed, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "swap")
	if err != nil {
		t.Fatal(err)
	}
	n := newClient(t, dir)
	n.testbed = testbed
	t.Cleanup(n.close)
	for _, addr := range []netip.Addr{nodeAddr, vip} {
		if err := testbed.Own(addr); err != nil {
			t.Fatal(err)
		}
	}
	for _, timeout := range []string{"nf_conntrack_udp_timeout", "nf_conntrack_udp_timeout_stream"} {
		err := os.WriteFile("/proc/sys/net/netfilter/"+timeout, fmt.Append(nil, streamsLast.Seconds()), 0)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
	for _, addr := range backends {
		n.serve(addr)
	}
	n.install()
	n.write("services/web.yaml", manifest)
	if apart.Asked() {
		n.goApart()
	}
	n.writeMode(mode)
	return n
}

// addSettings adds to the config file.
func (n *node) addSettings(more string) { n.more += more }

func newClient(t *testing.T, dir string) *node {
	return &node{T: t, dir: dir, drain: 10 * time.Second, Client: admin.NewClient(filepath.Join(dir, "admin.sock"))}
}

// close ends the host, and cleans up after it.
func (n *node) close() {
	if n.cmd != nil {
		n.end(syscall.SIGINT)
	}
	n.stopPlugins()
	if n.testbed != nil {
		clean := exec.Command(n.path("pointsman"), "cleanup", "--config", n.path("host.yaml"))
		if out, err := clean.CombinedOutput(); err != nil {
			n.Errorf("cleanup: %v: %s", err, out)
		}
		if err := n.testbed.Close(); err != nil {
			n.Error(err)
		}
	}
	if n.Failed() {
		log, _ := os.ReadFile(n.path("host.log"))
		n.Logf("the host's log:\n%s", log)
	}
	_ = os.RemoveAll(n.dir)
}

func (n *node) path(name string) string { return filepath.Join(n.dir, name) }

func (n *node) write(name, text string) {
	n.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(n.path(name)), 0o755), os.WriteFile(n.path(name)+".new", []byte(text), 0o644), os.Rename(n.path(name)+".new", n.path(name))); err != nil {
		n.Fatal(err)
	}
}

// writeMode writes the config file.
func (n *node) writeMode(mode string) { n.write("host.yaml", n.settings(mode)) }

func (n *node) settings(mode string) string {
	text := fmt.Sprintf(settings, mode, n.drain) + n.more + n.pluginSettings()
	if n.probed {
		text = strings.NewReplacer(`healthzBindAddress: ""`, "healthzBindAddress: 127.0.0.1:10256", `metricsBindAddress: ""`, "metricsBindAddress: 127.0.0.1:10249").Replace(text)
	}
	return text
}

// until waits until check returns no error.
func (n *node) until(what string, check func() error) {
	n.Helper()
	eventually.SucceedsWithin(n, long, what, check)
}

// swapTo swaps, waits until the new mode serves, and returns how long that took.
func (n *node) swapTo(mode string) time.Duration {
	n.Helper()
	began := time.Now()
	if out, err := n.verb("mode", "swap", mode, "--wait=20m"); err != nil {
		n.Fatalf("swap to %s: %v: %s", mode, err, out)
	}
	took := time.Since(began)
	n.expectListable()
	return took
}

// expectListable checks that nft, if it is installed, can list the kernel's rules in each format.
func (n *node) expectListable() {
	n.Helper()
	if _, err := exec.LookPath("nft"); err != nil {
		return
	}
	for _, form := range []string{"-a", "-j", "-t"} {
		if out, err := exec.Command("nft", form, "list", "ruleset").CombinedOutput(); err != nil {
			n.Errorf("nft %s list ruleset: %v: %s", form, err, out[max(0, len(out)-500):])
		}
	}
}

// verb runs pointsman with these arguments.
func (n *node) verb(words ...string) (string, error) {
	cmd := exec.CommandContext(n.Context(), n.path("pointsman"), append(words, "--config", n.path("host.yaml"))...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// waitForMode waits until no swap is under way, and mode serves.
func (n *node) waitForMode(mode string) admin.Mode {
	n.Helper()
	var m admin.Mode
	n.until("the swap has ended and "+mode+" serves", func() (err error) {
		if m, err = n.Mode(n.Context()); err != nil {
			return err
		}
		if m.Swap != nil || m.Mode != mode {
			return fmt.Errorf("mode %s, swap %+v", m.Mode, m.Swap)
		}
		return nil
	})
	return m
}

// expectOnly checks that nothing is left of other modes.
func (n *node) expectOnly(mode string) {
	n.Helper()
	for _, other := range modes {
		if other != mode {
			n.expectNothingLeft(other)
		}
	}
}

// expectNothingLeft checks that nothing of a mode is left: nothing that its binary would clean up, and nothing that
// only this mode makes.
func (n *node) expectNothingLeft(mode string) {
	n.Helper()
	out, err := exec.Command(n.path("plugins/pointsman-dataplane-"+mode), "cleanup", "--dry-run").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "nothing to remove") {
		n.Errorf("a dry run of cleanup of %s still names objects: %v: %s", mode, err, out)
	}
	for _, tool := range []string{"iptables-nft-save", "ip6tables-nft-save", "iptables-legacy-save", "ip6tables-legacy-save", "nft list tables"} {
		words := strings.Fields(tool)
		out, err := exec.Command(words[0], words[1:]...).Output()
		trace := map[string]string{"iptables": "KUBE-SVC-", "userspace": "KUBE-PORTALS-", "nftables": "table ip pointsman\n"}[mode]
		if err == nil && strings.Contains(string(out), trace) {
			n.Errorf("%s still has what %s made:\n%s", tool, mode, out)
		}
	}
}
