// SPDX-License-Identifier: Apache-2.0

package breakage

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/sdk/sdktest/netns"
	"github.com/pointsman/pointsman/test/eventually"
	"github.com/pointsman/pointsman/test/traffic"
)

const settings = `apiVersion: pointsman.dev/v1alpha1
kind: HostConfig
mode: %s
source: {files: {path: services}}
hostnameOverride: n1
minSyncPeriod: 20ms
syncPeriod: %s
detectLocal: {clusterCIDRs: [10.180.0.0/24]}
adminSocket: %s
stateDir: %s
healthzBindAddress: %s
metricsBindAddress: %s
oomScoreAdj: 0
pluginDirs: [plugins]
swap: {drainTimeout: 1m}
linux: {conntrack: {maxPerCore: 0}}
logging: {level: debug}
plugins:
`

// syncPeriod is short, so that healthz changes its code soon.
const syncPeriod = 3 * time.Second

// Where a host answers, in its node's namespace.
const healthz, metrics = "127.0.0.1:10256", "127.0.0.1:10249"

// streamsLast is how long a node remembers a flow of datagrams, which has no end that
// anyone could see. What drains waits for it.
const streamsLast = 3 * time.Second

// long is how long a test waits for what comes soon on a machine that does little else.
const long = time.Minute

// A node is a host with its plugins in a namespace of its own, and those who call it.
type node struct {
	*testing.T
	*admin.Client
	*rand.Rand
	dir     string
	backend string // of iptables
	testbed *netns.Testbed
	here    *netns.Host // the node itself
	before  dump        // what was there before any host

	mode     string // that the config file has
	services map[int]service
	cmd      *exec.Cmd
	exited   chan struct{}

	healthz, metrics string // where its host answers, in its own namespace

	load     *traffic.Load
	relayed  []window  // in which a relay's connections may fail
	sequence []string  // what was done
	began    time.Time // the run
}

// newNode makes one with the mode and the Services, and what is foreign to it. It does
// not start the host. It skips without root.
func newNode(t *testing.T, backend, mode string, r *rand.Rand) *node {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root: it makes network namespaces and writes rules")
	}
	testbed, err := netns.Apart()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "brk")
	if err != nil {
		t.Fatal(err)
	}
	n := &node{
		T: t, Client: admin.NewClient(filepath.Join(dir, "admin.sock")), Rand: r, dir: dir, backend: backend, testbed: testbed, here: testbed.Node(),
		mode: mode, services: make(map[int]service), began: time.Now(), healthz: healthz, metrics: metrics,
	}
	t.Cleanup(n.close)
	if err := testbed.Own(nodeAddr); err != nil {
		t.Fatal(err)
	}
	for _, timeout := range []string{"nf_conntrack_udp_timeout", "nf_conntrack_udp_timeout_stream"} {
		n.sysctl("net/netfilter/"+timeout, fmt.Sprint(int(streamsLast.Seconds())))
	}
	for _, addr := range backends {
		n.serve(addr)
	}
	if err := os.Mkdir(n.path("state"), 0o700); err != nil {
		t.Fatal(err)
	}
	n.mount()
	n.install("pointsman", "pointsman")
	for _, name := range n.modes() {
		n.install(plugin(name), "plugins/"+plugin(name))
	}
	n.write("services/web.yaml", web)
	n.configure(mode)
	n.foreign()
	n.before = n.dump()
	return n
}

func (n *node) path(name string) string { return filepath.Join(n.dir, name) }

// write puts a file in place at once.
func (n *node) write(name, text string) {
	n.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(n.path(name)), 0o755), os.WriteFile(n.path(name)+".new", []byte(text), 0o644), os.Rename(n.path(name)+".new", n.path(name))); err != nil {
		n.Fatal(err)
	}
}

func (n *node) read(name string) string {
	n.Helper()
	data, err := os.ReadFile(n.path(name))
	if err != nil {
		n.Fatal(err)
	}
	return string(data)
}

// sysctl sets a kernel parameter of the node, if it has it.
func (n *node) sysctl(name, value string) {
	n.Helper()
	err := n.here.Do(func() error { return os.WriteFile("/proc/sys/"+name, []byte(value), 0) })
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		n.Fatal(err)
	}
}

// configure writes the config file.
func (n *node) configure(mode string) {
	n.Helper()
	n.mode = mode
	n.write("host.yaml", n.settings(mode))
}

func (n *node) settings(mode string) string {
	return n.settingsOf(mode, "admin.sock", "state", healthz, metrics)
}

func (n *node) settingsOf(mode, socket, state, healthz, metrics string) string {
	text := fmt.Sprintf(settings, mode, syncPeriod, socket, state, healthz, metrics)
	for _, name := range n.modes() {
		if name != "nftables" {
			text += fmt.Sprintf("  %s: {options: {backend: %s}}\n", name, n.backend)
		}
	}
	return text
}

// modes are those that this kernel has: the one with IPVS is taken to be user-mode Linux's,
// which has no NAT by nf_tables.
func (n *node) modes() []string {
	if n.guest() {
		return []string{"iptables", "userspace", "ipvs"}
	}
	return []string{"iptables", "userspace", "nftables"}
}

// beside is the node as another host on it sees it, with the same Services.
func (n *node) beside(socket, healthz, metrics string) *node {
	return &node{
		T: n.T, Client: admin.NewClient(n.path(socket)), Rand: n.Rand, dir: n.dir, backend: n.backend, testbed: n.testbed, here: n.here,
		mode: n.mode, services: n.services, began: n.began, healthz: healthz, metrics: metrics,
	}
}

// run runs a command on the node to its end.
func (n *node) run(name string, words ...string) (string, error) {
	var out []byte
	err := n.here.Do(func() (err error) {
		out, err = exec.Command(name, words...).CombinedOutput()
		return err
	})
	return string(out), err
}

// must is run of what has to work.
func (n *node) must(name string, words ...string) string {
	n.Helper()
	out, err := n.run(name, words...)
	if err != nil {
		n.Fatalf("%s %q: %v: %s", name, words, err, out)
	}
	return out
}

// verb runs pointsman with these words.
func (n *node) verb(words ...string) (string, error) {
	return n.run(n.path("pointsman"), append(words, "--config", n.path("host.yaml"))...)
}

// begin starts the host, with more in its environment, and does not wait.
func (n *node) begin(env ...string) {
	n.Helper()
	n.cmd, n.exited = n.host("host.yaml", "host.log", env...)
}

// host starts one by a config file.
func (n *node) host(config, log string, env ...string) (*exec.Cmd, chan struct{}) {
	n.Helper()
	out, err := os.OpenFile(n.path(log), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		n.Fatal(err)
	}
	defer out.Close()
	cmd := exec.Command(n.path("pointsman"), "run", "--config", n.path(config))
	cmd.Stdout, cmd.Stderr, cmd.Env = out, out, append(os.Environ(), env...)
	if err := n.here.Do(cmd.Start); err != nil {
		n.Fatal(err)
	}
	exited := make(chan struct{})
	go func() { // ends with the host
		_ = cmd.Wait()
		close(exited)
	}()
	return cmd, exited
}

// end sends the host a signal and waits for its end.
func (n *node) end(sig syscall.Signal) {
	n.Helper()
	if n.cmd == nil {
		return
	}
	_ = n.cmd.Process.Signal(sig)
	select {
	case <-n.exited:
	case <-time.After(eventually.Timeout):
		n.Errorf("the host did not end within %s of %s", eventually.Timeout, sig)
		_ = n.cmd.Process.Signal(syscall.SIGQUIT) // and it says in its log what it is doing
		select {
		case <-n.exited:
		case <-time.After(5 * time.Second):
			_ = n.cmd.Process.Kill()
			<-n.exited
		}
	}
	n.cmd = nil
}

// until waits for check to find nothing wrong.
func (n *node) until(what string, wait time.Duration, check func() error) {
	n.Helper()
	eventually.SucceedsWithin(n, wait, what, check)
}

// close ends what is left of a run.
func (n *node) close() {
	if n.testbed == nil {
		return
	}
	if n.load != nil {
		n.load.End()
	}
	if n.Failed() {
		n.bundle()
	}
	n.end(syscall.SIGINT)
	for pid := range n.processes() {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	if err := n.testbed.Close(); err != nil {
		n.Error(err)
	}
	n.testbed = nil
	_ = unix.Unmount(n.path("state"), unix.MNT_DETACH)
	_ = os.RemoveAll(n.dir)
}

// processes are those in the node's namespace, or of its binaries wherever they are.
func (n *node) processes() map[int]string {
	found := make(map[int]string)
	var ours string
	_ = n.here.Do(func() (err error) { ours, err = os.Readlink("/proc/thread-self/ns/net"); return err })
	links, _ := filepath.Glob("/proc/[0-9]*/exe")
	for _, link := range links {
		exe, err := os.Readlink(link)
		if err != nil {
			continue
		}
		ns, _ := os.Readlink(filepath.Join(filepath.Dir(link), "ns/net"))
		var pid int
		_, _ = fmt.Sscan(filepath.Base(filepath.Dir(link)), &pid)
		if pid != os.Getpid() && (ns == ours || strings.HasPrefix(exe, n.dir+"/")) {
			found[pid] = exe
		}
	}
	return found
}

// plugins are the processes of a mode's plugin.
func (n *node) plugins(mode string) (pids []int) {
	for pid, exe := range n.processes() {
		if strings.HasSuffix(strings.TrimSuffix(exe, " (deleted)"), plugin(mode)) {
			pids = append(pids, pid)
		}
	}
	return pids
}
