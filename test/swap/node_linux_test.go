// SPDX-License-Identifier: Apache-2.0

// Package swap has hosts change their mode under traffic, on a real kernel, and
// kills them and their plugins in the middle of it.
package swap

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/sdk/sdktest/netns"
	"github.com/pointsman/pointsman/test/apart"
	"github.com/pointsman/pointsman/test/built"
	"github.com/pointsman/pointsman/test/eventually"
)

func TestMain(m *testing.M) {
	if count, err := strconv.Atoi(os.Getenv(observing)); err == nil {
		observed(count)
		return
	}
	netns.Main(tidy{m})
}

// tidy removes what the tests have built.
type tidy struct{ *testing.M }

func (t tidy) Run() int {
	code := t.M.Run()
	file := os.Getenv("POINTSMAN_FIGURES")
	if file == "" {
		measured.print(os.Stdout)
	} else if err := measured.keep(file); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	if programs.dir != "" {
		_ = os.RemoveAll(programs.dir)
	}
	return code
}

// The addresses of the world. The virtual one is the node's own too, so that a relay
// without root can listen on it.
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
  - {name: observed, port: 8090, nodePort: 30090, protocol: TCP}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: shop, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: tcp, port: 8080, protocol: TCP}, {name: udp, port: 8080, protocol: UDP}, {name: observed, port: 8090, protocol: TCP}]
endpoints: [{addresses: [10.180.0.1]}, {addresses: [10.180.1.1]}]
`

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
swap: {drainTimeout: %s}
linux: {conntrack: {maxPerCore: 0}}
`

// A node is a host with its plugins in a namespace, and those who call it.
type node struct {
	*testing.T
	*admin.Client
	dir      string
	drain    time.Duration // how long connections may take to end
	more     string        // that stands in the config file
	options  string        // of every plugin
	testbed  *netns.Testbed
	observed chan net.Conn // the far ends of connections that are to be observed

	cmd    *exec.Cmd
	exited chan struct{}

	kept map[string]*apart.Keeper // the plugins, where the host runs apart; nil: it starts them
}

// long is how long a test waits for what comes soon, on a machine that does little else.
const long = 2 * time.Minute

// streamsLast is how long the node remembers a flow of datagrams, which has no end that
// anyone could see. Who drains waits for it.
const streamsLast = 2 * time.Second

// newNode makes one that serves with mode. It skips without root.
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
		n.hear(addr)
	}
	n.install()
	n.write("services/web.yaml", manifest)
	if apart.Asked() {
		n.goApart()
	}
	n.mode(mode)
	return n
}

// set adds to the config file.
func (n *node) set(more string) { n.more += more }

func newClient(t *testing.T, dir string) *node {
	return &node{T: t, dir: dir, observed: make(chan net.Conn, 64), drain: 10 * time.Second, Client: admin.NewClient(filepath.Join(dir, "admin.sock"))}
}

// close ends the host and all that it left, and cleans up after it.
func (n *node) close() {
	if n.cmd != nil {
		_ = n.cmd.Process.Signal(syscall.SIGINT)
		n.gone(long)
	}
	n.letGo()
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

// mode writes the config file.
func (n *node) mode(mode string) { n.write("host.yaml", n.settings(mode)) }

func (n *node) settings(mode string) string {
	return fmt.Sprintf(settings, mode, n.drain) + n.more + n.plugged()
}

// measured is what all tests of this process measured.
var measured figures

// programs are the binaries, with failpoints, once a test has asked for them.
var programs struct {
	once sync.Once
	dir  string
	err  error
}

// install puts the binaries in place: links of what was built, which are there at once,
// and copies where there is something to replace.
func (n *node) install() {
	n.Helper()
	programs.once.Do(func() {
		if programs.dir, programs.err = os.MkdirTemp("", "swap-bin"); programs.err != nil {
			return
		}
		programs.err = built.Into(programs.dir, "failpoints", "./host/pointsman",
			"./plugins/userspace/pointsman-dataplane-userspace", "./plugins/iptables/pointsman-dataplane-iptables")
	})
	if programs.err != nil {
		n.Fatal(programs.err)
	}
	for from, to := range map[string]string{
		"pointsman":                     "pointsman",
		"pointsman-dataplane-userspace": "plugins/pointsman-dataplane-userspace",
		"pointsman-dataplane-iptables":  "plugins/pointsman-dataplane-iptables",
	} {
		n.copy(filepath.Join(programs.dir, from), to)
	}
}

// copy puts a binary in place, as a package manager would.
func (n *node) copy(from, to string) {
	n.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(n.path(to)), 0o755), built.Place(from, n.path(to))); err != nil {
		n.Fatal(err)
	}
}

// start starts the host, with more in its environment, and waits until it serves.
func (n *node) start(env ...string) {
	n.Helper()
	n.run(n.host(), env...)
	if n.kept != nil {
		if err := apart.Powerless(n.cmd.Process.Pid); err != nil {
			n.Fatal(err)
		}
	}
}

// host is the command that runs the host.
func (n *node) host() *exec.Cmd {
	words := []string{"run", "--config", n.path("host.yaml")}
	if n.kept != nil {
		return apart.Host(n.path("pointsman"), words...)
	}
	return exec.Command(n.path("pointsman"), words...)
}

// run is start, by this command.
func (n *node) run(host *exec.Cmd, env ...string) {
	n.Helper()
	n.exec(host, env...)
	n.until("the host serves", 2*time.Minute, func() error {
		s, err := n.Status(n.Context())
		switch {
		case err != nil:
			return err
		case s.Dataplane.Role != "active" || s.Sync.Acked == 0:
			return fmt.Errorf("%s is %s: %s", s.Dataplane.Name, s.Dataplane.State, s.Dataplane.Why)
		}
		return nil
	})
}

// exec starts the host by this command, and does not wait.
func (n *node) exec(host *exec.Cmd, env ...string) {
	n.Helper()
	log, err := os.OpenFile(n.path("host.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		n.Fatal(err)
	}
	defer log.Close()
	n.cmd = host
	n.cmd.Stdout, n.cmd.Stderr, n.cmd.Env = log, log, append(os.Environ(), env...)
	if err := n.cmd.Start(); err != nil {
		n.Fatal(err)
	}
	exited := make(chan struct{})
	n.exited = exited
	go func(c *exec.Cmd) { // ends with the host
		_ = c.Wait()
		close(exited)
	}(n.cmd)
}

// answering waits until every caller is answered on every way.
func (n *node) answering() {
	n.Helper()
	for _, c := range n.callers() {
		n.until(c.Name+" is answered at "+c.To.String(), long, func() error {
			_, err := c.Once(n.Context())
			return err
		})
	}
}

// gone waits for the host's end.
func (n *node) gone(wait time.Duration) {
	n.Helper()
	select {
	case <-n.exited:
	case <-time.After(wait):
		n.Errorf("the host did not end in %s", wait)
		_ = n.cmd.Process.Kill()
		<-n.exited
	}
	n.cmd = nil
}

// until waits for check to find nothing wrong.
func (n *node) until(what string, wait time.Duration, check func() error) {
	n.Helper()
	eventually.SucceedsWithin(n, wait, what, check)
}

// swapTo swaps, waits until the other mode serves, and says how long that took.
func (n *node) swapTo(mode string) time.Duration {
	n.Helper()
	began := time.Now()
	if out, err := n.verb("mode", "swap", mode, "--wait=20m"); err != nil {
		n.Fatalf("swap to %s: %v: %s", mode, err, out)
	}
	return time.Since(began)
}

// verb runs pointsman with these words.
func (n *node) verb(words ...string) (string, error) {
	cmd := exec.CommandContext(n.Context(), n.path("pointsman"), append(words, "--config", n.path("host.yaml"))...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// settled waits until no swap is under way, and mode serves.
func (n *node) settled(mode string) admin.Mode {
	n.Helper()
	var m admin.Mode
	n.until("the swap has ended and "+mode+" serves", 3*time.Minute, func() (err error) {
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

// plugin is the process of the plugin that a file of the state folder names.
func (n *node) plugin(mode string) int {
	if n.kept != nil {
		return n.kept[mode].PID()
	}
	for _, file := range []string{"process.json", "process-b.json"} {
		var handle struct{ PID int }
		text, err := os.ReadFile(n.path("state/plugins/" + mode + "/" + file))
		if err == nil && json.Unmarshal(text, &handle) == nil && handle.PID > 0 && syscall.Kill(handle.PID, 0) == nil {
			return handle.PID
		}
	}
	return 0
}

// processes are those of this node's plugins, whichever file names them: their binaries, by
// process id.
func (n *node) processes() map[string]string {
	n.Helper()
	all := make(map[string]string)
	links, _ := filepath.Glob("/proc/[0-9]*/exe")
	for _, link := range links {
		if exe, err := os.Readlink(link); err == nil && strings.HasPrefix(exe, n.path("plugins")+"/") {
			all[filepath.Base(filepath.Dir(link))] = exe
		}
	}
	return all
}

// traceless checks that nothing of a mode is left: by what its own binary would
// clean up, and by what only that mode makes.
func (n *node) traceless(mode string) {
	n.Helper()
	out, err := exec.Command(n.path("plugins/pointsman-dataplane-"+mode), "cleanup", "--dry-run").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "nothing to remove") {
		n.Errorf("%s is not gone: %v: %s", mode, err, out)
	}
	for _, tool := range []string{"iptables-nft-save", "ip6tables-nft-save", "iptables-legacy-save", "ip6tables-legacy-save"} {
		out, err := exec.Command(tool).Output()
		if err == nil && strings.Contains(string(out), map[string]string{"iptables": "KUBE-SVC-", "userspace": "KUBE-PORTALS-"}[mode]) {
			n.Errorf("%s still has rules of %s:\n%s", tool, mode, out)
		}
	}
}

// serve answers TCP and UDP on one of the backends, until the test ends: with what
// was said.
func (n *node) serve(addr netip.Addr) {
	n.Helper()
	at := netip.AddrPortFrom(addr, port)
	n.echo(at)
	host, err := n.testbed.Host(addr)
	if err != nil {
		n.Fatal(err)
	}
	packets, err := host.ListenPacket(n.Context(), "udp4", at)
	if err != nil {
		n.Fatal(err)
	}
	context.AfterFunc(n.Context(), func() { _ = packets.Close() })
	go func() { // ends with the socket
		said := make([]byte, 64)
		for {
			count, from, err := packets.ReadFrom(said)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				_, _ = packets.WriteTo(said[:count], from)
			}
		}
	}()
}

// echo answers TCP.
func (n *node) echo(at netip.AddrPort) {
	n.Helper()
	n.takes("tcp", at, func(conn net.Conn) {
		go func() { defer conn.Close(); _, _ = io.Copy(conn, conn) }() // ends with its caller
	})
}

// hear takes in, on one of the backends, who calls to be observed.
func (n *node) hear(addr netip.Addr) {
	n.Helper()
	n.takes("tcp", netip.AddrPortFrom(addr, observedPort), func(conn net.Conn) { n.observed <- conn })
}

// takes hands everyone who calls there to take, one after the other, until the test ends.
func (n *node) takes(network string, at netip.AddrPort, take func(net.Conn)) {
	n.Helper()
	host, err := n.testbed.Host(at.Addr())
	if err != nil {
		n.Fatal(err)
	}
	l, err := host.Listen(n.Context(), network, at)
	if err != nil {
		n.Fatal(err)
	}
	context.AfterFunc(n.Context(), func() { _ = l.Close() })
	go func() { // ends with the listener
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			take(conn)
		}
	}()
}
