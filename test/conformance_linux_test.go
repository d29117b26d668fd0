// SPDX-License-Identifier: Apache-2.0

package test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pointsman/pointsman/sdk/ledger"
	"github.com/pointsman/pointsman/sdk/sdktest"
	"github.com/pointsman/pointsman/test/built"
)

// apart calls f on a thread that is in a network namespace of its own, where 127.0.0.0/8 is up, with a
// ledger of its own. What f opens and starts itself is there, too.
func apart(t *testing.T, f func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, for a network namespace")
	}
	binaries(t) // here, where a test may be ended
	done := make(chan error)
	go func() { // its thread is not let go, and ends with it
		runtime.LockOSThread()
		err := unix.Unshare(unix.CLONE_NEWNET | unix.CLONE_NEWNS)
		if err == nil {
			err = unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, "")
		}
		if err == nil {
			err = ledger.Private()
		}
		if err == nil {
			err = exec.Command("ip", "link", "set", "lo", "up").Run()
		}
		if err == nil {
			f()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatalf("a network namespace: %v", err)
	}
}

// conformance runs the program on the calling thread.
func conformance(t *testing.T, words ...string) (out string, exit int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute) // others may have the addresses first
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(binaries(t), "pointsman-conformance"), words...)
	text, err := cmd.CombinedOutput()
	if _, ran := errors.AsType[*exec.ExitError](err); err != nil && !ran {
		t.Errorf("%v: %v", words, err)
	}
	return string(text), cmd.ProcessState.ExitCode()
}

const neverRedirect = `{"redirect": "never"}`

// TestConformanceLooksFirst: what has the addresses that the suite needs is named once, and no check
// fails for it.
func TestConformanceLooksFirst(t *testing.T) {
	t.Parallel()
	words := []string{"--run", "C01/scenario/cluster-ip$", "--options", neverRedirect, plugin(t)}
	apart(t, func() {
		l, err := net.Listen("tcp4", "127.30.0.41:20080")
		if err != nil {
			t.Error(err)
			return
		}
		defer l.Close()
		out, exit := conformance(t, words...)
		me := fmt.Sprintf("pid %d (", os.Getpid())
		if exit != 1 || !strings.Contains(out, "testbed-is-free") || !strings.Contains(out, me) || !strings.Contains(out, "listens on 127.30.0.41:20080 (tcp)") || strings.Count(out, "NOT KEPT") != 1 {
			t.Errorf("with a listener in the way, exit %d:\n%s", exit, out)
		}
	})
	apart(t, func() {
		if text, err := exec.Command("iptables", "-w", "-t", "nat", "-A", "OUTPUT", "-d", "127.30.0.41", "-p", "tcp", "--dport", "20080",
			"-j", "DNAT", "--to", "127.180.0.1:28080").CombinedOutput(); err != nil {
			t.Errorf("a rule: %v: %s", err, text)
			return
		}
		out, exit := conformance(t, words...)
		if exit != 1 || !strings.Contains(out, "no process listens at 127.30.0.41:20080") || !strings.Contains(out, "pointsman cleanup") {
			t.Errorf("with a rule in the way, exit %d:\n%s", exit, out)
		}
	})
}

// byItself starts a plugin that runs by itself, until the test ends, and returns its address and process.
func byItself(t *testing.T, name string) (address string, process *os.Process) {
	address = "unix://" + filepath.Join(t.TempDir(), name, "s")
	cmd := exec.Command(plugin(t), "--listen", address)
	if err := cmd.Start(); err != nil {
		t.Error(err)
		return "", nil
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if !listensSoon(t, address) {
		return "", nil
	}
	return address, cmd.Process
}

// TestConformanceByAddress holds a plugin that runs by itself to the contract, alone and beside a second
// process of it. Both are there afterwards, and serve nothing.
func TestConformanceByAddress(t *testing.T) {
	t.Parallel()
	apart(t, func() {
		address, first := byItself(t, "own")
		other, second := byItself(t, "other")
		if first == nil || second == nil {
			return
		}
		alone := byAddress(t, "-o", "json", "--run", "C0[0678]/|C01/scenario/cluster-ip$", "--options", neverRedirect, address)
		if alone.Subject != address {
			t.Errorf("the report is of %q", alone.Subject)
		}
		for _, f := range alone.Findings {
			swap := strings.HasPrefix(f.Check, "C08/second") || f.Check == "C07/swap-under-load"
			if f.Status == sdktest.Fail || swap && (f.Status != sdktest.NotRun || !strings.Contains(f.Reason, "--second ADDRESS")) ||
				f.Check == "C07/swap-under-load" && !f.Needed {
				t.Errorf("alone: %s", f)
			}
		}
		both := byAddress(t, "-o", "json", "--run", "C0[68]/|C07/swap|C07/only-active", "--options", neverRedirect, "--second", other, address)
		for _, f := range both.Findings {
			ends := f.Check == "C06/restart" || f.Check == "C06/cleanup-of-nothing"
			if f.Status == sdktest.Fail || f.Status == sdktest.NotRun && f.Needed || f.Check == "C07/swap-under-load" && f.Status != sdktest.Pass ||
				ends && (f.Status != sdktest.NotRun || !strings.Contains(f.Reason, "would have to end")) {
				t.Errorf("with a second: %s", f)
			}
		}
		for _, p := range []*os.Process{first, second} {
			if err := p.Signal(unix.Signal(0)); err != nil {
				t.Errorf("a plugin has ended: %v", err)
			}
		}
	})
}

// byAddress returns the report of a part of the checks, of which none may fail.
func byAddress(t *testing.T, words ...string) (report sdktest.Report) {
	t.Helper()
	out, exit := conformance(t, words...)
	var printed struct {
		Conforms bool
		sdktest.Report
	}
	if err := json.Unmarshal([]byte(out), &printed); err != nil || exit != 0 || printed.Conforms || !printed.Partial {
		t.Errorf("of a part, exit %d, conforms %t, %v: %.4000s", exit, printed.Conforms, err, out)
	}
	return printed.Report
}

// listensSoon waits until a plugin answers at an address.
func listensSoon(t *testing.T, address string) bool {
	t.Helper()
	var err error
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if err = exec.Command(plugin(t), "alive", address).Run(); err == nil {
			return true
		}
	}
	t.Errorf("%s: %v", address, err)
	return false
}

// TestSwapToAMutePlugin: a plugin that names nothing in Standby is not swapped to. The host says what it
// would have to do, and the check that it names shows the same.
func TestSwapToAMutePlugin(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.plugins = s.path("plugins")
	if err := errors.Join(built.Into(s.plugins, "", "./test/mute/pointsman-dataplane-mute"), built.Place(plugin(t), filepath.Join(s.plugins, userspace))); err != nil {
		t.Fatal(err)
	}
	s.config("")
	backend(t, at(s.net+"101"))
	s.manifest("web.yaml", tcpService("web", "NET.10", 18080, "NET.101"))
	s.start()
	s.served("tcp", s.net+"10:18080")
	if got := s.verb("mode", "swap", "mute"); got.code != 0 && !strings.Contains(got.err, "in Standby it has to name") {
		t.Errorf("mode swap says %+v", got)
	}
	s.until("an event says what to do", func() error {
		return errors.Join(s.event("SwapUndone", "in Standby it has to name what it would serve"), s.event("SwapUndone", "pointsman-conformance --run C07 "+s.plugins))
	})
	s.served("tcp", s.net+"10:18080")
	out, exit := conformance(t, "--run", "C07/standby-inspects", filepath.Join(s.plugins, "pointsman-dataplane-mute"))
	if exit != 1 || !strings.Contains(out, "standby-inspects: Inspect in Standby, which is to name what Active would serve") {
		t.Errorf("conformance exits with %d and says\n%s", exit, out)
	}
}
