// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest"
	"github.com/pointsman/pointsman/sdk/sdktest/netns"
	"github.com/pointsman/pointsman/test/eventually"
	"github.com/pointsman/pointsman/test/share"
)

func TestMain(m *testing.M) { netns.Main(m) }

// A node is a host that serves a folder, with neighbours and pods around it.
type node struct {
	testing.TB
	*admin.Client
	bin, dir string
	testbed  *netns.Testbed
	cmd      *exec.Cmd
	exited   chan struct{}
}

func newNode(t testing.TB) *node {
	bin := os.Getenv("POINTSMAN_BIN")
	switch {
	case !share.Take(t.Name()):
		t.Skip("another guest has it")
	case os.Getuid() != 0:
		t.Skip("needs root: it makes network namespaces")
	case bin == "":
		t.Skip("needs the binaries: make test-ipvs builds them, and sets POINTSMAN_BIN")
	}
	if _, err := os.Stat("/proc/sys/net/ipv4/vs"); err != nil {
		t.Skip("needs a kernel with IPVS: make test-ipvs brings one")
	}
	testbed, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "pointsman-")
	if err != nil {
		t.Fatal(err)
	}
	n := &node{TB: t, Client: admin.NewClient(filepath.Join(dir, "admin.sock")), bin: bin, dir: dir, testbed: testbed}
	t.Cleanup(n.end)
	n.write("host.yaml", n.config("ipvs"))
	if err := os.Mkdir(filepath.Join(dir, "services"), 0o755); err != nil {
		t.Fatal(err)
	}
	return n
}

func (n *node) config(mode string) string {
	return fmt.Sprintf(`apiVersion: pointsman.dev/v1alpha1
kind: HostConfig
mode: %s
source: {files: {path: services}}
hostnameOverride: n1
detectLocal: {clusterCIDRs: [10.180.0.0/24, "fd00:10:180::/64"]}
minSyncPeriod: 20ms
adminSocket: admin.sock
stateDir: state
healthzBindAddress: ""
metricsBindAddress: ""
oomScoreAdj: 0
swap: {holdTimeout: 2m}
pluginDirs: [%s]
`, mode, n.bin)
}

func (n *node) write(name, text string) {
	n.Helper()
	path := filepath.Join(n.dir, name)
	if err := os.WriteFile(path+".new", []byte(text), 0o644); err != nil {
		n.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		n.Fatal(err)
	}
}

// start starts the host, and waits until everything is served.
func (n *node) start() {
	n.Helper()
	n.launch()
	n.serving()
}

// launch starts the host.
func (n *node) launch() {
	n.Helper()
	log, err := os.OpenFile(filepath.Join(n.dir, "host.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		n.Fatal(err)
	}
	defer log.Close()
	n.cmd = exec.Command(filepath.Join(n.bin, "pointsman"), "run", "--config", filepath.Join(n.dir, "host.yaml"))
	n.cmd.Stdout, n.cmd.Stderr = log, log
	if err := n.cmd.Start(); err != nil {
		n.Fatal(err)
	}
	exited := make(chan struct{})
	n.exited = exited
	go func() { // ends with the host
		_ = n.cmd.Wait()
		close(exited)
	}()
}

func (n *node) serving() {
	n.Helper()
	n.until("everything is served", func() error {
		st, err := n.Status(n.Context())
		switch {
		case err != nil:
			return err
		case st.Dataplane.State != "serving" || st.Dataplane.Role != "active" || st.Sync.Acked == 0 || st.Sync.Pending > 0:
			return fmt.Errorf("dataplane %s, %s (%s), sync %+v", st.Dataplane.State, st.Dataplane.Role, st.Dataplane.Why, st.Sync)
		}
		return nil
	})
}

// timeout limits what must happen. It is long, since a loaded machine is no failure, and a guest on one takes seconds
// to start a program.
const timeout = 10 * time.Minute

func (n *node) until(what string, is func() error) {
	n.Helper()
	eventually.SucceedsWithin(n, timeout, what, is)
}

// stop ends the host as a shutdown of the node would: its plugin ends with it.
func (n *node) stop() {
	n.Helper()
	if n.cmd == nil {
		return
	}
	_ = n.cmd.Process.Signal(syscall.SIGINT)
	select {
	case <-n.exited:
	case <-time.After(timeout):
		_ = n.cmd.Process.Kill()
		<-n.exited
		n.Errorf("the host did not end within %s of SIGINT", timeout)
	}
	n.cmd = nil
}

func (n *node) end() {
	if n.Failed() && n.cmd != nil {
		st, err := n.Status(context.Background())
		n.Logf("the host says: %+v, %v", st, err)
		_ = n.cmd.Process.Signal(syscall.SIGQUIT) // a loaded guest logs why it takes so long
	}
	n.stop()
	for _, mode := range []string{"ipvs", "iptables", "userspace"} { // a test may end in any mode, and the next one has the same kernel
		if out, err := exec.Command(filepath.Join(n.bin, "pointsman-dataplane-"+mode), "cleanup").CombinedOutput(); err != nil {
			n.Errorf("cleanup of %s: %v: %s", mode, err, out)
		}
	}
	if n.Failed() {
		text, _ := os.ReadFile(filepath.Join(n.dir, "host.log"))
		n.Logf("the host's log:\n%s", text)
	}
	if err := n.testbed.Close(); err != nil {
		n.Error(err)
	}
	_ = os.RemoveAll(n.dir)
}

// showScenario writes a scenario's manifests to the folder, and lets its endpoints answer.
func (n *node) showScenario(name string) (sdktest.Scenario, sdktest.Stage) {
	n.Helper()
	all := sdktest.Scenarios()
	s := all[slices.IndexFunc(all, func(s sdktest.Scenario) bool { return s.Name == name })]
	placed, _ := n.testbed.Place(s)
	stage, err := n.testbed.Open(n.Context(), nil, placed)
	if err != nil {
		n.Fatal(err)
	}
	n.Cleanup(func() { stage.Close() })
	n.write("services/all.yaml", string(s.Manifests))
	return placed, stage
}

// expectPackets sends a scenario's packets, and compares each outcome.
func (n *node) expectPackets(s sdktest.Scenario, stage sdktest.Stage) {
	n.Helper()
	for _, p := range s.Packets {
		n.until(p.Text, func() error {
			a, err := stage.Send(n.Context(), p)
			if err != nil {
				return err
			}
			forwarded := a.Verdict == sdk.Forward
			if forwarded && slices.Contains(p.Want.Endpoints, a.Endpoint) || !forwarded && (p.Want.Unserved || p.Want.Verdict == a.Verdict) {
				return nil
			}
			return fmt.Errorf("seen %s", a)
		})
	}
}

// expectExplained runs the verb for a packet and looks for the words behind its address and port.
func (n *node) expectExplained(words ...string) {
	n.Helper()
	asked := 1 + slices.IndexFunc(words, func(w string) bool { return strings.HasSuffix(w, ":30080") })
	cmd := exec.CommandContext(n.Context(), filepath.Join(n.bin, "pointsman"), append([]string{"explain", "--config", filepath.Join(n.dir, "host.yaml")}, words[:asked]...)...)
	out, err := cmd.CombinedOutput()
	for _, want := range words[asked:] {
		if text := strings.Join(strings.Fields(string(out)), " "); err != nil || !strings.Contains(text, want) || strings.Contains(text, "differs") {
			n.Errorf("pointsman explain %q: %v: want %q in\n%s", words[:asked], err, want, out)
		}
	}
}

// plugin returns the process of the dataplane.
func (n *node) plugin() int {
	n.Helper()
	links, _ := filepath.Glob("/proc/[0-9]*/exe") // the pattern is valid
	for _, link := range links {
		if exe, _ := os.Readlink(link); filepath.Base(exe) == "pointsman-dataplane-ipvs" { // none of a process that has ended
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(link)))
			return pid
		}
	}
	n.Fatal("there is no plugin")
	return 0
}

// TestKernelIPVSWholeProduct tests from manifests to packets: changes in the folder change where packets go, and
// no call fails when the plugin is killed or the host is stopped.
func TestKernelIPVSWholeProduct(t *testing.T) {
	n := newNode(t)
	dual, stage := n.showScenario("dual-stack")
	n.start()
	n.expectPackets(dual, stage)
	n.expectExplained("outside:192.0.2.7", "192.0.2.10:30080", "verdict forward", "served now 10.180.0.1:8080", "up to IPVS, virtual service tcp 192.0.2.10:30080", "10.180.0.1:8080 100% this node")

	if err := syscall.Kill(n.plugin(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	n.expectPackets(dual, stage)
	n.serving()

	text := strings.Replace(string(dual.Manifests), "  name: web\n", "  name: web\n  labels: {service.kubernetes.io/service-proxy-name: another}\n", 1)
	n.write("services/all.yaml", text)
	n.until("what was given to another proxy is gone", func() error {
		if left, err := exec.Command("ipvsadm", "-Sn").CombinedOutput(); err != nil || strings.Contains(string(left), "172.30.0.41") {
			return fmt.Errorf("%s, %v", left, err)
		}
		return nil
	})

	local, stage := n.showScenario("node-port-local-nobody-here")
	n.expectPackets(local, stage)
	n.stop()
	n.expectPackets(local, stage)

	out, err := exec.Command(filepath.Join(n.bin, "pointsman-dataplane-ipvs"), "cleanup").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "kube-ipvs0") {
		t.Errorf("cleanup prints %s, %v", out, err)
	}
	if left, err := exec.Command("ipvsadm", "-Sn").CombinedOutput(); err != nil || len(left) > 0 {
		t.Errorf("after cleanup: %s, %v", left, err)
	}
}
