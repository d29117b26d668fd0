// SPDX-License-Identifier: Apache-2.0

package test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/pointsman/pointsman/test/eventually"
)

// TestFlat kills the plugin again and again. The host is as large at the end as it was
// on the way, and has as many files open. A soak does it a thousand times.
func TestFlat(t *testing.T) {
	t.Parallel()
	s := begun(t)
	times := 30
	if n, err := strconv.Atoi(os.Getenv("POINTSMAN_SOAK")); err == nil {
		times = max(times, 10*n)
	}
	pid := s.cmd.Process.Pid
	var size, files flatness
	for n := range times {
		s.another()
		size = append(size, resident(t, pid))
		files = append(files, len(opened(t, pid)))
		if n%100 == 99 {
			t.Logf("after %d restarts the host has %d KiB resident, and %d files open", n+1, size[n], files[n])
		}
	}
	slack := 5
	if times < 500 {
		slack = 30 // for a host that is still warming up
	}
	t.Logf("%d restarts: resident KiB %s; files open %s", times, size, files)
	if before, after := size.halves(); after > before+before*slack/100 {
		t.Errorf("the host grew by more than %d %%: from %d to %d KiB", slack, before, after)
	}
	if before, after := files.halves(); after > before+2 {
		t.Errorf("the host had %d files open, and has %d", before, after)
	}
}

// another kills the plugin, and waits until another process serves: for long, as the
// machine may have much else to do in the hours of a soak.
func (s *system) another() {
	s.t.Helper()
	was := s.plugin()
	if err := syscall.Kill(was, syscall.SIGKILL); err != nil {
		s.t.Fatal(err)
	}
	eventually.SucceedsWithin(s.t, 5*time.Minute, "another process serves", func() error {
		st, err := s.Status(s.t.Context())
		if err == nil && st.Dataplane.State == "serving" && st.Dataplane.PID != was {
			return nil
		}
		if err = errors.Join(err, s.asked("userspace")); err != nil {
			return eventually.Final(err)
		}
		return fmt.Errorf("%s (%s)", st.Dataplane.State, st.Dataplane.Why)
	})
}

// asked has a plugin that would wait, as who dies so often has to, tried at once.
func (s *system) asked(plugin string) error {
	st, err := s.Status(s.t.Context())
	if err == nil && st.Dataplane.State == "waiting" {
		_, err = s.Restart(s.t.Context(), plugin)
	}
	return err
}

// A flatness is a figure taken again and again, of what should stay as it is.
type flatness []int

// halves are the medians of the second fifth, when all is warm, and of the last.
func (f flatness) halves() (before, after int) {
	fifth := max(1, len(f)/5)
	return middle(f[min(fifth, len(f)-1):][:min(fifth, len(f)-1)]), middle(f[len(f)-fifth:])
}

// floors are the least of the first half and of the second, once all is warm: what is
// kept, where each time something else comes and goes on top of it.
func (f flatness) floors() (before, after int) {
	warm := f[len(f)/5:]
	half := max(1, len(warm)/2)
	return slices.Min(warm[:half]), slices.Min(warm[len(warm)-half:])
}

func (f flatness) String() string {
	before, after := f.halves()
	least, later := f.floors()
	return fmt.Sprintf("%d after a fifth of the time, %d at the end, %d at most; from then on at least %d in the first half, %d in the second", before, after, slices.Max(f), least, later)
}

func middle(all []int) int { return slices.Sorted(slices.Values(all))[len(all)/2] }
