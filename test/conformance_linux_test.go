// SPDX-License-Identifier: Apache-2.0

package test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pointsman/pointsman/sdk/ledger"
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
