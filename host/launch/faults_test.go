// SPDX-License-Identifier: Apache-2.0

//go:build unix

package launch

import (
	"context"
	"errors"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pointsman/pointsman/internal/lines"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/wire"
	"github.com/pointsman/pointsman/test/actor"
	"github.com/pointsman/pointsman/test/eventually"
)

// read gathers a plugin's log beside the test.
func read(t *testing.T, r *Plugin) (lines func() []wire.LogLine) {
	t.Helper()
	var mu sync.Mutex
	var got []wire.LogLine
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- r.Logs(ctx, func(l wire.LogLine) {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, l)
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Logs ended with %v", err)
		}
	})
	return func() []wire.LogLine {
		mu.Lock()
		defer mu.Unlock()
		return append([]wire.LogLine(nil), got...)
	}
}

func contains(lines []wire.LogLine, message string) bool {
	for _, l := range lines {
		if strings.Contains(l.Message, message) {
			return true
		}
	}
	return false
}

func TestRubbishOnStderrIsHarmless(t *testing.T) {
	r := configured(t, launched(t, "rubbish-stderr"), order{Raw: true})
	logged := read(t, r)
	if _, err := r.Sync(soon(t), full(1)); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "the line that package log printed is logged", func() bool { return contains(logged(), `{"@message":5}`) })
	eventually.True(t, "the rubbish is logged", func() bool { return contains(logged(), "\uFFFD rubbish") })
	r.process.kill(syscall.SIGKILL)
	<-r.Exited()
	said := strings.Join(r.Exit().Stderr, "\n")
	if !strings.Contains(said, `{"@message":5}`) || !strings.Contains(said, "bytes more)") || len(said) > 3*lines.Max {
		t.Errorf("its last words, %d bytes, are\n%.300s", len(said), said)
	}
}

// A plugin that prints more than any pipe holds goes on, with or without a host
// that reads it.
func TestPrintingDoesNotBlock(t *testing.T) {
	for _, reading := range []bool{true, false} {
		r := configured(t, launched(t, "serve"), order{Print: 1 << 20, Log: 10000})
		logged := func() []wire.LogLine { return nil }
		if reading {
			logged = read(t, r)
		}
		if _, err := r.Sync(soon(t), full(1)); err != nil {
			t.Fatal(err)
		}
		if reading {
			eventually.True(t, "the last line is logged", func() bool { return contains(logged(), "a line") })
		}
		v, err := r.Vitals(soon(t))
		if err != nil || !reading && v.LogDropped == 0 {
			t.Errorf("vitals are %+v, %v; want dropped lines counted", v, err)
		}
	}
}

func TestAPanicIsReported(t *testing.T) {
	r := configured(t, launched(t, "serve"), order{Panic: "wrong step"})
	_, err := r.Sync(soon(t), full(1))
	if err == nil || !strings.Contains(err.Error(), "exited with code 2: panic: wrong step") {
		t.Errorf("Sync: %v; want the panic", err)
	}
	<-r.Exited()
	if said := strings.Join(r.Exit().Stderr, "\n"); !strings.Contains(said, "goroutine") {
		t.Errorf("its last words are %s; want the stack", said)
	}
}

func TestAFatalLogIsReported(t *testing.T) {
	r := configured(t, launched(t, "serve"), order{Fatal: "no way on"})
	_, err := r.Sync(soon(t), full(1))
	if err == nil || !strings.Contains(err.Error(), "exited with code 1: ") || !strings.HasSuffix(err.Error(), "no way on") {
		t.Errorf("Sync: %v; want the last line of its log", err)
	}
}

func TestStoppedInSync(t *testing.T) {
	t.Parallel() // it mostly waits
	r := configured(t, launched(t, "serve"), order{Wait: true})
	go r.Sync(soon(t), full(1))
	eventually.True(t, "Sync runs", func() bool {
		v, err := r.Vitals(soon(t))
		return err == nil && v.Call == "Sync"
	})
	halt(t, r)
	if _, err := r.Sync(brief(t), actor.Bulk(2000, 20)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a big Sync: %v; want that the deadline passed", err)
	}
	start := time.Now()
	if err := r.Stop(context.Background()); err != nil {
		t.Errorf("Stop: %v", err)
	}
	if took := time.Since(start); took > 30*time.Second {
		t.Errorf("Stop took %s", took)
	}
	if e := r.Exit(); e.Signal != syscall.SIGKILL {
		t.Errorf("it %s; want SIGKILL", e)
	}
}

func brief(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

// A dataplane that ignores its context hangs. Others are told so, and Stop ends it.
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
		t.Errorf("SetRole: %v; want that it waited in vain", err)
	}
	if err := r.Stop(soon(t)); err != nil {
		t.Error(err)
	}
}

func TestKilledInSync(t *testing.T) {
	r := configured(t, launched(t, "serve"), order{Wait: true})
	failed := make(chan error, 1)
	go func() {
		_, err := r.Sync(soon(t), full(1))
		failed <- err
	}()
	eventually.True(t, "Sync runs", func() bool {
		v, err := r.Vitals(soon(t))
		return err == nil && v.Call == "Sync"
	})
	r.process.kill(syscall.SIGKILL)
	if err := <-failed; err == nil || !strings.Contains(err.Error(), "was ended by signal 9") {
		t.Errorf("Sync: %v; want how the process ended", err)
	}
}

func TestTermIsAnOrderlyEnd(t *testing.T) {
	r := configured(t, launched(t, "serve"), order{})
	r.process.kill(syscall.SIGTERM)
	<-r.Exited()
	if e := r.Exit(); e.Code != 0 || e.Signal != 0 {
		t.Errorf("it %s; want an orderly end", e)
	}
}
