// SPDX-License-Identifier: Apache-2.0

package supervise

import (
	"errors"
	"os"
	"syscall"
	"testing"
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
