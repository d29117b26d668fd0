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

	"github.com/pointsman/pointsman/test/eventually"
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

// TestWindows is one life of a node, since a Windows of its own takes half a minute to create.
func TestWindows(t *testing.T) {
	w := newWine(t)
	serve(t)
	w.write("host.yaml", settings)
	w.write("manifests/web.yaml", manifest(endpoints...))
	n := &node{wine: w}
	n.describes()
	n.start()
	eventually.SucceedsWithin(t, limit, "the Service is served", func() error { _, err := once(); return err })
	n.calls = call(t)
	for _, scenario := range []struct {
		what string
		run  func()
	}{
		{"is served by all endpoints", func() { n.calls.answered(t, endpoints...) }},
		{"an endpoint is removed", n.edited},
		{"a manifest is no manifest", n.badManifest},
		{"an address cannot be added", n.addressLacking},
		{"folders that are made are closed to other users", n.closed},
		{"a second host is refused", n.secondHost},
		{"another binary serves instead", n.swapped},
		{"and again", n.swapped},
		{"the host is killed, and its plugin ends", n.hostKilled},
		{"the plugin is killed, and comes back", n.pluginKilled},
		{"a pipe that no host has", n.nothingThere},
		{"the dataplane conforms, as far as wine goes", n.conforms},
		{"a plugin listens by itself", n.listens},
		{"the relay's own tests of TCP", n.relays},
	} {
		t.Log(scenario.what)
		scenario.run()
		if t.Failed() {
			t.Fatalf("%s; the host printed:\n%s", scenario.what, w.read("host.log"))
		}
	}
}

// A node is a host under wine, and the requests to it.
type node struct {
	*wine
	calls *calls
	host  *exec.Cmd
}

// start starts the host. It ends with its wine at the latest.
func (n *node) start() {
	n.Helper()
	cmd, err := n.begin(context.Background(), "host.log", n.loader, n.path("bin/pointsman.exe"), "run", "--config", there(n.path("host.yaml")))
	if err != nil {
		n.Fatal(err)
	}
	n.host = cmd
	n.Cleanup(func() { n.end(); _ = cmd.Wait() })
}

// verb runs a verb of pointsman that asks the host.
func (n *node) verb(words ...string) (out string, exit int) {
	n.Helper()
	return n.run("pointsman", append(words, "--config", there(n.path("host.yaml")))...)
}

// status waits until status has an exit code and prints says.
func (n *node) status(exit int, says string) {
	n.Helper()
	eventually.SucceedsWithin(n, limit, fmt.Sprintf("status exits %d and says %q", exit, says), func() error {
		out, got := n.verb("status")
		if got != exit || !strings.Contains(out, says) {
			return fmt.Errorf("exit %d:\n%s", got, out)
		}
		return nil
	})
}

// plugin returns the process of the active dataplane, and how often it was restarted.
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

// describes tests what needs no host.
func (n *node) describes() {
	n.Helper()
	out, exit := n.run("pointsman-dataplane-userspace", "describe", "-o", "json")
	var d struct{ Name string }
	if err := json.Unmarshal([]byte(out), &d); err != nil || exit != 0 || d.Name != "userspace" {
		n.Fatalf("describe: exit %d, %v\n%s", exit, err, out)
	}
	if out, exit := n.run("pointsman", "config", "defaults"); exit != 0 || !strings.Contains(out, `adminSocket: '\\.\pipe\pointsman'`) || !strings.Contains(out, `\Pointsman\state'`) {
		n.Errorf("the defaults are not those of Windows: exit %d\n%s", exit, out)
	}
	example, err := filepath.Abs("../../configs/windows.yaml")
	if err != nil {
		n.Fatal(err)
	}
	if out, exit := n.run("pointsman", "config", "show", "--config", there(example), "--files", there(n.path("manifests"))); exit != 0 || !strings.Contains(out, `pipe\pointsman`) {
		n.Errorf("with configs/windows.yaml: exit %d\n%s", exit, out)
	}
}

func (n *node) edited() {
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

// swapped: the old process closes its sockets for the new one, and keeps open connections. Only between the two may a
// request be refused.
func (n *node) swapped() {
	before, _, err := n.plugin()
	if err != nil {
		n.Fatal(err)
	}
	long, err := net.DialTimeout("tcp4", echoes, callTimeout)
	if err == nil {
		defer long.Close()
		err = echoed(long, "before")
	}
	if err != nil {
		n.Fatal(err)
	}
	// A file that is executed can be renamed on Windows, and not written to.
	name := n.path("bin/pointsman-dataplane-userspace.exe")
	binary, err := os.ReadFile(name)
	if err := errors.Join(err, os.Rename(name, name+".old"), os.WriteFile(name, append(binary, 0), 0o755)); err != nil {
		n.Fatal(err)
	}
	// A swap may only take seconds, and is undone on a machine that is too busy.
	eventually.SucceedsWithin(n, limit, "a swap is made", func() error {
		if out, exit := n.verb("mode", "swap", "userspace", "--wait=2m"); exit != 0 {
			return fmt.Errorf("exit %d\n%s", exit, out)
		}
		return nil
	})
	if now, _, err := n.plugin(); err != nil || now == before {
		n.Errorf("it is process %d as before: %v", now, err)
	}
	if err := echoed(long, "while the old process drains"); err != nil {
		n.Error(err)
	}
	n.calls.forget()
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

// hostKilled: the plugin ends with its host, and the next host serves by another one.
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
		if _, err := once(); err == nil {
			return errors.New("requests are answered")
		}
		return nil
	})
	n.start()
	eventually.SucceedsWithin(n, limit, "the next host serves", func() error {
		now, _, err := n.plugin()
		if err == nil && now == before {
			err = fmt.Errorf("process %d serves, which was there before", now)
		}
		return err
	})
	n.write("manifests/web.yaml", manifest(endpoints...))
	eventually.SucceedsWithin(n, limit, "the Service is served again", func() error { _, err := once(); return err })
	n.calls.forget()
	n.calls.answered(n.T, endpoints...)
}

// pluginKilled: requests fail until it is back, and not after.
func (n *node) pluginKilled() {
	before, _, err := n.plugin()
	if err != nil {
		n.Fatal(err)
	}
	n.kill("pointsman-dataplane-userspace.exe")
	eventually.SucceedsWithin(n, limit, "another plugin serves", func() error {
		now, _, err := n.plugin()
		if err == nil && now == before {
			err = errors.New("it is the same process")
		}
		return err
	})
	eventually.SucceedsWithin(n, limit, "the Service is served again", func() error { _, err := once(); return err })
	n.calls.forget()
	n.calls.answered(n.T, endpoints...)
}

// nothingThere: the pipe of no host.
func (n *node) nothingThere() {
	if out, exit := n.run("pointsman", "status", "--admin-socket", `\\.\pipe\pointsman-elsewhere`); exit != 3 {
		n.Errorf("no host has that pipe: exit %d\n%s", exit, out)
	}
}

// lacking is wine 8.0's error for an option that Go sets on each UDP socket.
const lacking = "wsaioctl: winapi error #10045"

// conforms tests the dataplane against the parts of the contract about sessions and packets.
func (n *node) conforms() {
	n.Helper()
	out, _ := n.run("pointsman-conformance", "-v", "--run", "^C0[01]/", "--options", `{"redirect": "never"}`, there(n.path("bin/pointsman-dataplane-userspace.exe")))
	if strings.Contains(out, "testbed-is-free") { // on Windows the suite does not wait for that
		n.Logf("not run, for another run of the suite has the addresses:\n%s", out)
		return
	}
	kept := 0
	for line := range strings.Lines(out) {
		switch {
		case strings.HasPrefix(line, "pass "):
			kept++
		case strings.HasPrefix(line, "fail ") && !strings.Contains(line, lacking):
			n.Error(line)
		}
	}
	if kept < 20 {
		n.Errorf("%d checks passed; it printed:\n%s", kept, out)
	}
	n.Logf("%d checks passed", kept)
}

// relays runs the relay's own tests without those of UDP, which wine 8.0 lacks, those that take long, and those that
// expect a reset, which wine sometimes reads as an end.
func (n *node) relays() {
	n.Helper()
	name := n.path("bin/relay.test.exe")
	n.build("test", "-c", "-o", name, "../../plugins/userspace/relay")
	out, exit := n.run(name, "-test.v", "-test.timeout", "5m", "-test.run", "^Test(HalfClose|NextEndpoint|Established|IPv6)$")
	if passed := strings.Count(out, "\n--- PASS: "); exit != 0 || passed < 3 { // IPv6 may not be available
		n.Errorf("exit %d, %d tests passed:\n%s", exit, passed, out)
	}
}

// closed runs the tests of the folders that hosts and plugins create.
func (n *node) closed() {
	n.Helper()
	name := n.path("bin/statefile.test.exe")
	n.build("test", "-c", "-o", name, "../../sdk/statefile")
	if out, exit := n.outside(n.loader, name, "-test.v", "-test.run=^TestMakeDir$"); exit != 0 || !strings.Contains(out, "--- PASS: TestMakeDir") {
		n.Errorf("exit %d\n%s", exit, out)
	}
}

// kill ends a process as the task manager does.
func (n *node) kill(program string) {
	n.Helper()
	if out, exit := n.run("taskkill", "/F", "/IM", program); exit != 0 {
		n.Fatalf("taskkill %s: exit %d\n%s", program, exit, out)
	}
}
