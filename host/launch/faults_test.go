// SPDX-License-Identifier: Apache-2.0

//go:build unix

package launch

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pointsman/pointsman/internal/lines"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/test/eventually"
)

// A record has the lines that a plugin printed.
type record struct {
	mu    sync.Mutex // guards lines
	lines []string
}

func (r *record) add(line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, line)
}

func (r *record) has(text string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.lines, func(l string) bool { return strings.Contains(l, text) })
}

// recorded launches a plugin that plays a part, and records its output.
func recorded(t *testing.T, name string) (*Process, *record) {
	t.Helper()
	printed := &record{}
	c := part(name, shortDir(t))
	c.Log = printed.add
	r, err := c.launch(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Stop() })
	return r, printed
}

func TestRubbishOnStderrIsHarmless(t *testing.T) {
	r, printed := recorded(t, "rubbish-stderr")
	configured(t, r, order{Raw: true})
	if _, err := r.Sync(soon(t), full(1)); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "what was printed is read", func() bool {
		return printed.has(`{"@message":5}`) && printed.has("bytes more)") && printed.has("\xff\xfe rubbish")
	})
	r.child.kill()
	<-r.Exited()
	if said := strings.Join(r.child.output, "\n"); len(said) > 3*lines.Max {
		t.Errorf("its last words are %d bytes", len(said))
	}
}

// A plugin that prints more than a pipe holds does not wait for its reader, and reports how many lines of its log
// were dropped.
func TestPrintingDoesNotBlock(t *testing.T) {
	for _, reading := range []bool{true, false} {
		c := part("serve", shortDir(t))
		printed, release := &record{}, make(chan struct{})
		c.Log = func(line string) {
			if !reading {
				<-release
			}
			printed.add(line)
		}
		r, err := c.launch(soon(t))
		if err != nil {
			t.Fatal(err)
		}
		configured(t, r, order{Print: 1 << 20, Log: 10000})
		if _, err := r.Sync(soon(t), full(1)); err != nil {
			t.Fatal(err)
		}
		v, err := r.Vitals(soon(t))
		if err != nil || !reading && v.LogDropped == 0 {
			t.Errorf("vitals are %+v, %v; want dropped lines counted", v, err)
		}
		close(release)
		eventually.True(t, "what was printed is read", func() bool { return printed.has("ppp") })
		if err := r.Stop(); err != nil {
			t.Error(err)
		}
	}
}

// A host reads output no faster than outputRate.
func TestOutputIsLimited(t *testing.T) {
	flood := limited(strings.NewReader(strings.Repeat("x", 2*outputRate+1)))
	began := time.Now()
	if n, err := io.Copy(io.Discard, flood); err != nil || n != 2*outputRate+1 {
		t.Fatal(n, err)
	}
	if took := time.Since(began); took < time.Second {
		t.Errorf("it was read in %s", took)
	}
}

// TestCrashInSync: the error of the call has how the process ended, and its last words.
func TestCrashInSync(t *testing.T) {
	for _, c := range []struct {
		order      order
		want, last string
	}{
		{order{Panic: "wrong step"}, "exited with code 2: panic: wrong step", "goroutine"},
		{order{Fatal: "no way on"}, "exited with code 1: ", "no way on"},
		{order{Wait: true, Signal: int(syscall.SIGKILL)}, "was ended by signal 9", ""},
	} {
		r := configured(t, launched(t, "serve"), c.order)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second) // Wait ends with it
		_, err := r.Sync(ctx, full(1))
		cancel()
		<-r.Exited()
		if c.order.Wait {
			err = errors.New(r.Ending()) // the call may have ended by its deadline
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.order, err, c.want)
		}
		if said := strings.Join(r.child.output, "\n"); !strings.Contains(said, c.last) {
			t.Errorf("%+v: its last words are %s, want %q", c.order, said, c.last)
		}
	}
}

func brief(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

// If a dataplane ignores the end of a call's context, other calls fail, and Stop ends the process.
func TestHungInSync(t *testing.T) {
	t.Parallel() // it mostly waits
	r := configured(t, launched(t, "serve"), order{Hang: true})
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second) // long enough to arrive
	defer cancel()
	if _, err := r.Sync(ctx, full(1)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Sync: %v; want that the deadline passed", err)
	}
	eventually.True(t, "the call is overdue", func() bool {
		v, err := r.Vitals(soon(t))
		return err == nil && v.Call == "Sync" && v.Overdue > time.Second
	})
	err := r.SetRole(brief(t), sdk.Active)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("SetRole: %v; want a deadline error", err)
	}
	if err := r.Stop(); err != nil {
		t.Error(err)
	}
}

func TestTermIsAnOrderlyEnd(t *testing.T) {
	r := configured(t, launched(t, "serve"), order{})
	syscall.Kill(r.child.PID(), syscall.SIGTERM)
	<-r.Exited()
	if how := r.Ending(); how != "exited with code 0" {
		t.Errorf("it %s; want an orderly end", how)
	}
}
