// SPDX-License-Identifier: Apache-2.0

package supervise

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// held holds all descriptors that this process may still have, but for some.
type held struct {
	*testing.T
	files []*os.File
}

// descriptorsOf lets this process have few descriptors, until the test ends, and takes them.
func descriptorsOf(t *testing.T) *held {
	t.Helper()
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	h := &held{T: t}
	t.Cleanup(func() {
		h.leave(all)
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &was); err != nil {
			t.Error(err)
		}
	})
	few := was
	few.Cur = 256
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	return h
}

// leave takes all descriptors but n.
func (h *held) leave(n int) {
	h.Helper()
	for n == all && len(h.files) > 0 {
		h.free()
	}
	for n != all {
		f, err := os.Open(os.DevNull)
		if errors.Is(err, syscall.EMFILE) {
			break
		}
		if err != nil {
			h.Fatal(err)
		}
		h.files = append(h.files, f)
	}
	for range min(n, len(h.files)) {
		h.free()
	}
}

const all = 1 << 20

func (h *held) free() {
	h.files[len(h.files)-1].Close()
	h.files = h.files[:len(h.files)-1]
}

// TestHindered starts a plugin anew while the host has no descriptors left, or few: whatever
// the launch fails of is the host's, it is tried again soon, and counts for nothing.
func TestHindered(t *testing.T) {
	y := newHarness(t, "serve")
	y.run()
	h := descriptorsOf(t)
	hindered := 0
	for left := range 24 {
		h.leave(all)
		before := y.untilServing()
		h.leave(left)
		y.host.Restart("the test wants it")
		after := y.until("back, or tried again", func(s Status) bool {
			return s.Restarts > before.Restarts && s.State != Starting
		})
		switch {
		case after.State == Serving:
		case after.State == Waiting && strings.Contains(after.Why, "not the plugin's fault") && strings.Contains(after.Why, "RLIMIT_NOFILE is 256"):
			hindered++
			if wait := after.Next.Sub(after.Since); wait > time.Second {
				t.Errorf("with %d descriptors left it is tried again after %s", left, wait)
			}
		default:
			t.Errorf("with %d descriptors left it is %s: %s", left, after.State, after.Why)
		}
	}
	if hindered == 0 {
		t.Error("no launch was hindered")
	}
	h.leave(all)
	before := y.untilServing()
	h.leave(0)
	y.host.Restart("the test wants it")
	y.until("hindered again and again", func(s Status) bool { return s.Restarts > before.Restarts+10 })
	h.leave(all)
	y.untilServing()
}
