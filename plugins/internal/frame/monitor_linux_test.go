// SPDX-License-Identifier: Apache-2.0

package frame

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/test/eventually"
)

// TestAfterFailure: a call that failed is put right by the monitor, if no other call comes.
func TestAfterFailure(t *testing.T) { inBubble(t, afterFailure) }

func afterFailure(t *testing.T) {
	k := newKernel()
	l := begin(t, k, t.TempDir())
	l.full(service(1, 1))
	k.do(func() { k.fail = func() error { return errors.New("the kernel has no memory") } })
	if _, err := l.Sync(t.Context(), sdk.Update{From: 1, To: 2, Set: []sdk.Service{service(1, 2)}}); err == nil {
		t.Fatal("nothing failed")
	}
	k.do(func() { k.fail = nil })
	k.expect(t, service(1, 1))
	eventually.Pass(probeEvery)
	k.expect(t, service(1, 2)) // the first try does not wait for retryMost
}

// TestWarnsOnce: what fails at each look, as where no process can be started, is logged once a minute.
func TestWarnsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines bytes.Buffer
		d := &Dataplane[*sdk.Service]{log: slog.New(slog.NewTextHandler(&lines, nil))}
		f := &family[*sdk.Service]{Family: newMemory(sdk.IPv4, newKernel())}
		fork := fmt.Errorf("fork/exec iptables-save: %w", syscall.EAGAIN)
		for _, c := range []struct {
			wait time.Duration
			err  error
			want int // lines
		}{{0, fork, 1}, {probeEvery, fork, 1}, {0, errors.New("another"), 2}, {59 * time.Second, fork, 2}, {time.Second, fork, 3}} {
			eventually.Pass(c.wait)
			d.repaired(t.Context(), f, "why", nil, c.err)
			if n := strings.Count(lines.String(), "\n"); n != c.want {
				t.Errorf("%s later %v: %d lines, want %d:\n%s", c.wait, c.err, n, c.want, lines.String())
			}
		}
	})
}

// TestRepair: what another process removes is restored, but not by a process that must not write.
func TestRepair(t *testing.T) { inBubble(t, repair) }

func repair(t *testing.T) {
	k, dir := newKernel(), t.TempDir()
	l := begin(t, k, dir)
	l.full(service(1, 1))
	k.flush()
	eventually.Pass(probeEvery)
	if n := l.Report().Repaired; n != 1 {
		t.Errorf("after one look there are %d repairs", n)
	}
	k.expect(t, service(1, 1))
	for what, end := range map[string]func(){
		"yielded":    func() { l.become(sdk.Yielded) },
		"was closed": func() { _ = l.Close() },
	} {
		l.become(sdk.Active)
		k.expect(t, service(1, 1))
		end()
		k.flush()
		eventually.Pass(3 * probeEvery)
		if k.differs(nil) != nil {
			t.Errorf("one that %s put it back", what)
		}
		l.configure()
		l.become(sdk.Active)
		l.full(service(1, 1))
	}
}

// A watched is a family in memory of which a test says what its probe finds.
type watched struct {
	*memory
	found chan Finding
	wants int // how often a Service was rendered

	forgot [][]sdk.Service // of which Services UDP flows were looked for
}

func (w *watched) Forget(_ sdk.Family, services []sdk.Service, _ func()) (int, error) {
	w.forgot = append(w.forgot, services)
	return 0, nil
}

func (w *watched) Want(s sdk.Service) (*sdk.Service, error) { w.wants++; return w.memory.Want(s) }

func (w *watched) Probe(context.Context) Finding {
	select {
	case f := <-w.found:
		return f
	default:
		return Finding{}
	}
}

// TestMovedAndDue: what is to be written though nothing was lost is written, and is no
// repair. Only another node has everything rendered again.
func TestMovedAndDue(t *testing.T) {
	t.Parallel()
	k := newKernel()
	w := &watched{memory: newMemory(sdk.IPv4, k), found: make(chan Finding)}
	wake := make(chan struct{})
	mode := inMemory(k)
	mode.Open = func(context.Context, sdk.Setup, Env) (Session[*sdk.Service], error) {
		return Session[*sdk.Service]{Families: []Family[*sdk.Service]{w}, Wake: wake}, nil
	}
	l := beginMode(t, k, mode, t.TempDir())
	l.full(service(1, 1), service(2, 1))
	find := func(f Finding) {
		l.semaphore.held <- struct{}{}
		w.wants = 0
		w.touched[service(1, 0).Name] = true
		delete(w.have, service(1, 0).Name)
		k.flush()
		<-l.semaphore.held
		select {
		case wake <- struct{}{}:
		case w.found <- f: // the monitor was there by itself
			return
		}
		w.found <- f
	}
	find(Finding{Due: true})
	eventually.True(t, "what is due is written", func() bool { return k.differs([]sdk.Service{service(1, 1)}) == nil })
	if w.wants > 0 {
		t.Errorf("for what is due %d Services were rendered", w.wants)
	}
	find(Finding{Moved: true})
	eventually.True(t, "on a node that is otherwise it is written", func() bool { return k.differs([]sdk.Service{service(1, 1)}) == nil })
	if w.wants != 2 {
		t.Errorf("for another node %d of 2 Services were rendered", w.wants)
	}
	if n := l.Report().Repaired; n > 0 {
		t.Errorf("%d of it were repairs", n)
	}
	if len(w.forgot) > 0 {
		t.Errorf("flows of %v were looked for", w.forgot)
	}
	find(Finding{Lost: All, Why: "a test says so"})
	eventually.True(t, "what was lost is written", func() bool { return k.differs([]sdk.Service{service(1, 1), service(2, 1)}) == nil })
	eventually.True(t, "the repair is counted", func() bool { return l.Report().Repaired == 1 })
	if said := l.Report().Repair; !strings.Contains(said, "a test says so; put back in ") {
		t.Errorf("it is said: %q", said)
	}
	w.found <- Finding{Unsure: true}
	w.found <- Finding{Unsure: true} // the first was looked at
	if r := l.Report(); !strings.Contains(r.Lost, "a test says so") {
		t.Errorf("before another look was over it is said: %q", r.Lost)
	}
	w.found <- Finding{}
	eventually.True(t, "a look finds nothing lost", func() bool { return l.Report().Lost == "" })
}
