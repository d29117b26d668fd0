// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pointsman/pointsman/sdk/sdktest"
)

// TestKernelConforms holds the binary to the contract.
func TestKernelConforms(t *testing.T) {
	bin := binaries(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	report, err := sdktest.ConformBinary(ctx, filepath.Join(bin, "pointsman-dataplane-haproxy"), os.Stderr, sdktest.Options{})
	if err != nil || !report.Conforms() {
		t.Errorf("it does not conform: %v\n%s", err, report)
	}
}

// haproxy returns the instance that serves.
func (n *node) haproxy() (i *instance) {
	n.Helper()
	n.until("HAProxy serves", func() error {
		s, err := storeHere()
		if err != nil {
			return err
		}
		number, err := s.current()
		if err != nil {
			return err
		}
		if i, _, err = s.open(number); err == nil && i.process == nil {
			err = errors.New("it has ended")
		}
		return err
	})
	i.process.Release()
	return i
}

const one, two, three = "127.180.0.1", "127.180.0.2", "127.180.0.3"

// served is a node that serves "web", with three endpoints of which two are its.
func served(t *testing.T, spec string) *node { return serves(t, newNode(t, false), spec) }

func serves(t *testing.T, n *node, spec string) *node {
	for _, ip := range []string{one, two, three} {
		endpoint(t, ip)
	}
	n.service("web", 1, spec, one, two)
	n.answers(frontend(1), one, two)
	return n
}

// TestKernelChangesUnderTraffic: endpoints come and go in the same process of HAProxy, and frontends by
// one process after the other; no call fails.
func TestKernelChangesUnderTraffic(t *testing.T) {
	n := served(t, "")
	conn, by, err := call("127.0.0.9", frontend(1))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	first := n.haproxy().process.PID()
	r := newRush(t, frontend(1))
	for range 5 {
		n.service("web", 1, "", three)
		n.answers(frontend(1), three)
		n.service("web", 1, "", one, two)
		n.answers(frontend(1), one, two)
		r.more(n, 100)
	}
	if now := n.haproxy().process.PID(); now != first {
		t.Errorf("HAProxy is process %d, and was %d before endpoints changed", now, first)
	}
	const reloads = 20
	for i := range reloads {
		n.service("other", 2+i%2, "", three)
		n.answers(frontend(2+i%2), three)
		r.more(n, 100)
	}
	if now := n.haproxy(); now.process.PID() == first || now.number < reloads {
		t.Errorf("HAProxy is process %d, instance %d, after %d changes of frontends", now.process.PID(), now.number, reloads)
	}
	calls := r.end(t)
	t.Logf("%d calls, %d reloads", calls, reloads)
	fmt.Fprintln(conn, "still")
	text := make([]byte, 16)
	if k, err := conn.Read(text); err != nil || strings.TrimSpace(string(text[:k])) != "still" {
		t.Errorf("what was established with %s before: %q, %v", by, text[:k], err)
	}
}

// TestKernelPluginIsKilled: HAProxy goes on without the plugin, and the next process of the plugin
// adopts it. The host leaves it alone when it starts the plugin again, as it is declared.
func TestKernelPluginIsKilled(t *testing.T) {
	t.Run("which the host started", func(t *testing.T) {
		n := newNode(t, false)
		n.killed(func() {
			before, err := n.status()
			if err != nil {
				t.Fatal(err)
			}
			if err := syscall.Kill(before.Dataplane.PID, syscall.SIGKILL); err != nil {
				t.Fatalf("process %d: %v", before.Dataplane.PID, err)
			}
			n.until("the host starts another", func() error {
				now, err := n.status()
				if err == nil && (now.Dataplane.PID == 0 || now.Dataplane.PID == before.Dataplane.PID) {
					err = fmt.Errorf("process %d, and it was %d", now.Dataplane.PID, before.Dataplane.PID)
				}
				return err
			})
		})
	})
	t.Run("which runs by itself", func(t *testing.T) {
		n := newNode(t, true)
		plugin := n.plugin()
		n.killed(func() {
			if err := plugin.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = plugin.Wait()
			time.Sleep(100 * time.Millisecond) // without a plugin
			plugin = n.plugin()
		})
	})
}

// killed replaces the plugin's process twice while callers call, and changes a Service meanwhile.
func (n *node) killed(replace func()) {
	t := n.T
	serves(t, n, "")
	first := n.haproxy().process.PID()
	r := newRush(t, frontend(1))
	for _, by := range []string{three, one} {
		n.service("web", 1, "", by)
		replace()
		n.until("what has changed meanwhile is served", func() error {
			_, got, err := call("", frontend(1))
			if err == nil && got != by {
				err = fmt.Errorf("answered by %s, want %s", got, by)
			}
			return err
		})
		r.more(n, 200)
	}
	if now := n.haproxy().process.PID(); now != first {
		t.Errorf("HAProxy is process %d, and was %d before the plugin was killed", now, first)
	}
	t.Logf("%d calls", r.end(t))
}

// TestKernelHAProxyIsKilled: it is started again, by the plugin alone.
func TestKernelHAProxyIsKilled(t *testing.T) {
	n := served(t, "")
	first := n.haproxy().process.PID()
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	n.until("another HAProxy serves", func() error {
		if now := n.haproxy().process.PID(); now == first {
			return fmt.Errorf("it is process %d as before", now)
		}
		return nil
	})
	n.answers(frontend(1), one, two)
}

// TestKernelSwaps swaps from the dataplane and to it while callers call.
func TestKernelSwaps(t *testing.T) {
	n := served(t, "")
	r := newRush(t, frontend(1))
	for _, mode := range []string{"userspace", "haproxy", "userspace", "haproxy"} {
		if _, err := n.verb("mode", "swap", mode, "--wait=120s"); err != nil {
			t.Fatal(err)
		}
		r.more(n, 100)
	}
	t.Logf("%d calls", r.end(t))
}

// TestKernelAffinity: a client keeps its endpoint, over reloads, over swaps to another dataplane and
// back, and when endpoints come.
func TestKernelAffinity(t *testing.T) {
	n := served(t, "  sessionAffinity: ClientIP")
	kept := make(map[string]string)
	for i := range 12 {
		kept[fmt.Sprintf("127.0.1.%d", i+1)] = ""
	}
	keep := func(when string) {
		t.Helper()
		for client, was := range kept {
			conn, now, err := call(client, frontend(1))
			if err != nil {
				t.Fatalf("%s: %v", when, err)
			}
			_ = conn.Close()
			if was != "" && now != was {
				t.Errorf("%s: %s is answered by %s, and was by %s", when, client, now, was)
			}
			kept[client] = now
		}
	}
	keep("first")
	for i := range 3 { // twice without a call between
		before := n.haproxy().number
		n.service("other", 2+i, "", three)
		n.answers(frontend(2+i), three)
		n.until("another HAProxy serves", func() error {
			if n.haproxy().number == before {
				return fmt.Errorf("it is instance %d as before", before)
			}
			return nil
		})
		if i != 1 {
			keep("after a reload")
		}
	}
	n.service("web", 1, "  sessionAffinity: ClientIP", one, two, three)
	n.until("HAProxy has three endpoints", func() error {
		servers, err := n.haproxy().api().servers(t.Context(), "ns.web.p.tcp4")
		if all := servers["ns.web.p.tcp4"]; err == nil && len(all) != 3 {
			err = fmt.Errorf("it has %v", all)
		}
		return err
	})
	keep("after an endpoint came")
	for _, mode := range []string{"userspace", "haproxy"} {
		if _, err := n.verb("mode", "swap", mode, "--wait=120s"); err != nil {
			t.Fatal(err)
		}
		keep("after a swap to " + mode)
	}
	n.service("other", 9, "", three)
	n.answers(frontend(9), three)
	keep("after a swap and a reload")
}

// TestKernelCleanup: nothing is left of it.
func TestKernelCleanup(t *testing.T) {
	n := served(t, "")
	i := n.haproxy()
	before, err := n.status()
	if err != nil || before.Dataplane.PID == 0 {
		t.Fatalf("process %d, %v", before.Dataplane.PID, err)
	}
	t.Cleanup(func() { _ = syscall.Kill(before.Dataplane.PID, syscall.SIGKILL) }) // it waits for another host
	_ = n.cmd.Process.Kill()
	_ = n.cmd.Wait()
	n.cmd = nil
	plugin := filepath.Join(n.bin, "pointsman-dataplane-haproxy")
	for _, words := range [][]string{{"cleanup", "--dry-run"}, {"cleanup"}} {
		out, err := exec.Command(plugin, words...).CombinedOutput()
		if err != nil || !strings.Contains(string(out), fmt.Sprintf("HAProxy, pid %d, which has 1 Services", i.process.PID())) {
			t.Errorf("%v: %v: %s", words, err, out)
		}
	}
	if i.process.Alive() {
		t.Error("HAProxy is there after cleanup")
	}
	s, err := storeHere()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(string(s)); !os.IsNotExist(err) {
		t.Errorf("%s is there after cleanup: %v", s, err)
	}
}
