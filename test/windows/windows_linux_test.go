// SPDX-License-Identifier: Apache-2.0

package windows

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pointsman/pointsman/test/eventually"
	"github.com/pointsman/pointsman/test/traffic"
)

const settings = `apiVersion: pointsman.dev/v1alpha1
kind: HostConfig
source: {files: {path: manifests}}
minSyncPeriod: 100ms
adminSocket: '\\.\pipe\pointsman'
stateDir: 'C:\pointsman\state'
dataDir: data
pluginDirs: [bin]
healthzBindAddress: ""
metricsBindAddress: ""
oomScoreAdj: 0
plugins: {userspace: {options: {addresses: auto}}}
`

// TestWindows runs all scenarios one after another on the same node, because each wine prefix takes half a minute to
// create.
func TestWindows(t *testing.T) {
	w := newWine(t)
	serveEndpoints(t)
	w.write("host.yaml", settings)
	w.write("manifests/web.yaml", manifest(endpoints...))
	n := &node{wine: w}
	n.withoutHost()
	n.start()
	eventually.SucceedsWithin(t, limit, "the Service is served", request)
	n.calls = startCalls(t)
	for _, scenario := range []struct {
		what string
		run  func()
	}{
		{"all endpoints serve", func() { n.calls.answered(t, endpoints...) }},
		{"an endpoint is removed", n.endpointRemoved},
		{"a manifest is invalid", n.badManifest},
		{"an address cannot be added", n.unassignableAddress},
		{"created folders are closed to other users", n.privateFolders},
		{"a second host is refused", n.secondHost},
		{"a swap replaces the plugin by a changed binary", n.swapped},
		{"a second swap does so", n.swapped},
		{"the host is killed, and its plugin ends", n.hostKilled},
		{"the plugin is killed, and the host restarts it", n.pluginKilled},
		{"no host listens at the admin socket", n.noHost},
		{"the dataplane passes the conformance suite", n.conforms},
		{"a plugin listens without a host", n.listens},
		{"the relay passes its own tests of TCP", n.relayTests},
	} {
		t.Log(scenario.what)
		scenario.run()
		if t.Failed() {
			t.Fatalf("%s; the host printed:\n%s", scenario.what, w.read("host.log"))
		}
	}
}

// A node is a wine with a host, and the requests to its Service.
type node struct {
	*wine
	calls *calls
	host  *exec.Cmd
}

// start starts the host. At the latest, the host ends with the test, which ends wine.
func (n *node) start() {
	n.Helper()
	cmd, err := n.begin(context.Background(), "host.log", n.loader, n.path("bin/pointsman.exe"), "run", "--config", windowsPath(n.path("host.yaml")))
	if err != nil {
		n.Fatal(err)
	}
	n.host = cmd
	n.Cleanup(func() { n.end(); _ = cmd.Wait() })
}

// verb runs a verb of pointsman with the host's config file.
func (n *node) verb(args ...string) (out string, exit int) {
	n.Helper()
	return n.run("pointsman", append(args, "--config", windowsPath(n.path("host.yaml")))...)
}

// status waits until `pointsman status` exits with a code and prints want.
func (n *node) status(exit int, want string) {
	n.Helper()
	eventually.SucceedsWithin(n, limit, fmt.Sprintf("status exits with %d and prints %q", exit, want), func() error {
		out, got := n.verb("status")
		if got != exit || !strings.Contains(out, want) {
			return fmt.Errorf("exit %d:\n%s", got, out)
		}
		return nil
	})
}

// plugin returns the PID of the active dataplane, and how often the host has restarted it.
func (n *node) plugin() (pid, restarts int, err error) {
	n.Helper()
	out, _ := n.verb("status")
	m := regexp.MustCompile(`userspace \S+ is active, pid (\d+), .* (\d+) restarts?`).FindStringSubmatch(out)
	if m == nil {
		return 0, 0, fmt.Errorf("no plugin is active: %s", out)
	}
	pid, err = strconv.Atoi(m[1])
	restarts, err2 := strconv.Atoi(m[2])
	return pid, restarts, errors.Join(err, err2)
}

// withoutHost tests verbs that need no running host.
func (n *node) withoutHost() {
	n.Helper()
	out, exit := n.run("pointsman-dataplane-userspace", "describe", "-o", "json")
	var d struct{ Name string }
	if err := json.Unmarshal([]byte(out), &d); err != nil || exit != 0 || d.Name != "userspace" {
		n.Fatalf("describe: exit %d, %v\n%s", exit, err, out)
	}
	if out, exit := n.run("pointsman", "config", "defaults"); exit != 0 || !strings.Contains(out, `adminSocket: "\\\\.\\pipe\\pointsman"`) || !strings.Contains(out, `\\Pointsman\\state"`) {
		n.Errorf("the defaults are not those of Windows: exit %d\n%s", exit, out)
	}
	example, err := filepath.Abs("../../configs/windows.yaml")
	if err != nil {
		n.Fatal(err)
	}
	if out, exit := n.run("pointsman", "config", "show", "--config", windowsPath(example), "--files", windowsPath(n.path("manifests"))); exit != 0 || !strings.Contains(out, `pipe\pointsman`) {
		n.Errorf("with configs/windows.yaml: exit %d\n%s", exit, out)
	}
}

func (n *node) endpointRemoved() {
	n.write("manifests/web.yaml", manifest(endpoints[:2]...))
	n.calls.answered(n.T, endpoints[:2]...)
}

func (n *node) badManifest() {
	n.write("manifests/bad.yaml", "kind: Service\nspec: [")
	n.status(2, "bad.yaml")
	if err := os.Remove(n.path("manifests/bad.yaml")); err != nil {
		n.Fatal(err)
	}
	n.status(0, "is active")
	n.calls.answered(n.T, endpoints[:2]...)
}

func (n *node) secondHost() {
	if out, exit := n.verb("run"); exit != 1 || !strings.Contains(out, "another host") {
		n.Errorf("a second host: exit %d\n%s", exit, out)
	}
}

// swapped replaces the plugin's binary and swaps to it. The old process closes its listeners for the new one, and keeps
// its connections. Requests may fail only until the new process listens.
func (n *node) swapped() {
	before, _, err := n.plugin()
	if err != nil {
		n.Fatal(err)
	}
	long, err := net.DialTimeout("tcp4", echoFrontend, limit)
	if err == nil {
		defer long.Close()
		err = errors.Join(long.SetDeadline(time.Now().Add(limit)), traffic.Say(long))
	}
	if err != nil {
		n.Fatal(err)
	}
	// Windows allows to rename a program that runs, but not to write to its file.
	name := n.path("bin/pointsman-dataplane-userspace.exe")
	binary, err := os.ReadFile(name)
	if err := errors.Join(err, os.Rename(name, name+".old"), os.WriteFile(name, append(binary, 0), 0o755)); err != nil {
		n.Fatal(err)
	}
	// The host rolls a swap back that takes longer than some seconds, as it may on a busy machine.
	eventually.SucceedsWithin(n, limit, "a swap succeeds", func() error {
		if out, exit := n.verb("mode", "swap", "userspace", "--wait=2m"); exit != 0 {
			return fmt.Errorf("exit %d\n%s", exit, out)
		}
		return nil
	})
	if now, _, err := n.plugin(); err != nil || now == before {
		n.Errorf("after the swap, process %d serves; want another one than %d: %v", now, before, err)
	}
	if err := errors.Join(long.SetDeadline(time.Now().Add(limit)), traffic.Say(long)); err != nil {
		n.Errorf("while the old process drains: %v", err)
	}
	n.calls.reset()
	n.calls.answered(n.T, endpoints[:2]...)
	_ = long.Close()
	eventually.SucceedsWithin(n, limit, "the swap is over", func() error {
		if out, _ := n.verb("status"); strings.Contains(out, "draining") {
			return errors.New(out)
		}
		return nil
	})
	n.status(0, "is active")
	n.calls.answered(n.T, endpoints[:2]...)
}

// hostKilled kills the host. The plugin must end, too, and the next host starts another one.
func (n *node) hostKilled() {
	before, _, err := n.plugin()
	if err != nil {
		n.Fatal(err)
	}
	n.kill("pointsman.exe")
	_ = n.host.Wait()
	if out, exit := n.verb("status"); exit != 3 {
		n.Errorf("without a host: exit %d\n%s", exit, out)
	}
	eventually.SucceedsWithin(n, limit, "the plugin ends", func() error {
		if request() == nil {
			return errors.New("the Service still answers")
		}
		return nil
	})
	n.start()
	eventually.SucceedsWithin(n, limit, "the next host serves", func() error {
		now, _, err := n.plugin()
		if err == nil && now == before {
			err = fmt.Errorf("process %d of the killed host serves", now)
		}
		return err
	})
	n.write("manifests/web.yaml", manifest(endpoints...))
	eventually.SucceedsWithin(n, limit, "the Service is served again", request)
	n.calls.reset()
	n.calls.answered(n.T, endpoints...)
}

// pluginKilled kills the plugin. Requests may fail until the host has restarted it, but not afterwards.
func (n *node) pluginKilled() {
	before, _, err := n.plugin()
	if err != nil {
		n.Fatal(err)
	}
	n.kill("pointsman-dataplane-userspace.exe")
	eventually.SucceedsWithin(n, limit, "another plugin serves", func() error {
		now, _, err := n.plugin()
		if err == nil && now == before {
			err = fmt.Errorf("status still names the killed process %d", now)
		}
		return err
	})
	eventually.SucceedsWithin(n, limit, "the Service is served again", request)
	n.calls.reset()
	n.calls.answered(n.T, endpoints...)
}

// noHost asks for the status at a pipe where no host listens.
func (n *node) noHost() {
	if out, exit := n.run("pointsman", "status", "--admin-socket", `\\.\pipe\pointsman-elsewhere`); exit != 3 {
		n.Errorf("status without a host: exit %d, want 3\n%s", exit, out)
	}
}

// udpError is wine 8.0's error for an option that Go sets on each UDP socket.
const udpError = "wsaioctl: winapi error #10045"

// conforms runs the checks of the conformance suite about sessions and packets, and ignores failures by udpError.
func (n *node) conforms() {
	n.Helper()
	out, _ := n.run("pointsman-conformance", "-v", "--run", "^C0[01]/", "--options", `{"redirect": "never"}`, windowsPath(n.path("bin/pointsman-dataplane-userspace.exe")))
	if strings.Contains(out, "testbed-is-free") { // on Windows the suite does not wait for another run
		n.Logf("the suite did not run, because another run of it uses its addresses:\n%s", out)
		return
	}
	passed := 0
	for line := range strings.Lines(out) {
		switch {
		case strings.HasPrefix(line, "pass "):
			passed++
		case strings.HasPrefix(line, "fail ") && !strings.Contains(line, udpError):
			n.Error(line)
		}
	}
	if passed < 20 {
		n.Errorf("%d checks passed, want at least 20; the suite printed:\n%s", passed, out)
	}
	n.Logf("%d checks passed", passed)
}

// relayTests runs tests of package relay under wine, except those of UDP (see udpError), those that take long, and those
// that expect a reset, which wine sometimes reports as end of file.
func (n *node) relayTests() {
	n.Helper()
	name := n.path("bin/relay.test.exe")
	n.build("test", "-c", "-o", name, "../../plugins/userspace/relay")
	out, exit := n.run(name, "-test.v", "-test.timeout", "5m", "-test.run", "^Test(HalfClose|NextEndpoint|Established|IPv6)$")
	if passed := strings.Count(out, "\n--- PASS: "); exit != 0 || passed < 3 { // IPv6 may not be available
		n.Errorf("exit %d, %d tests passed:\n%s", exit, passed, out)
	}
}

// privateFolders runs the test of statefile.MakeDir, by which hosts and plugins create folders.
func (n *node) privateFolders() {
	n.Helper()
	name := n.path("bin/statefile.test.exe")
	n.build("test", "-c", "-o", name, "../../sdk/statefile")
	if out, exit := n.runNative(n.loader, name, "-test.v", "-test.run=^TestMakeDir$"); exit != 0 || !strings.Contains(out, "--- PASS: TestMakeDir") {
		n.Errorf("exit %d\n%s", exit, out)
	}
}

// kill ends all processes of a program, as the task manager does.
func (n *node) kill(program string) {
	n.Helper()
	if out, exit := n.run("taskkill", "/F", "/IM", program); exit != 0 {
		n.Fatalf("taskkill %s: exit %d\n%s", program, exit, out)
	}
}
