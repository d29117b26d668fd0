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

// TestRetryAfterFailure: the monitor completes a call that failed, if no other call comes.
func TestRetryAfterFailure(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		k := newKernel()
		p := start(t, k, t.TempDir())
		p.full(service(1, 1))
		k.do(func() { k.fail = func() error { return errors.New("the kernel has no memory") } })
		if _, err := p.Sync(t.Context(), sdk.Update{From: 1, To: 2, Set: []sdk.Service{service(1, 2)}}); err == nil {
			t.Fatal("nothing failed")
		}
		k.do(func() { k.fail = nil })
		k.expect(t, service(1, 1))
		eventually.Pass(probeEvery)
		k.expect(t, service(1, 2)) // the first attempt does not wait for maxRetry
	})
}

// TestWarnsOnce: an error of each check, for example if no process can be started, is logged once a
// minute.
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
			d.tellRepair(t.Context(), f, "why", nil, c.err)
			if n := strings.Count(lines.String(), "\n"); n != c.want {
				t.Errorf("%s later %v: %d lines, want %d:\n%s", c.wait, c.err, n, c.want, lines.String())
			}
		}
	})
}

// TestRepair: the monitor restores what another program removes, unless the process must not write.
func TestRepair(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		k, dir := newKernel(), t.TempDir()
		p := start(t, k, dir)
		p.full(service(1, 1))
		k.flush()
		eventually.Pass(probeEvery)
		if n := p.Report().Repaired; n != 1 {
			t.Errorf("after one check there are %d repairs", n)
		}
		k.expect(t, service(1, 1))
		for what, end := range map[string]func(){
			"yielded":    func() { p.become(sdk.Yielded) },
			"was closed": func() { _ = p.Close() },
		} {
			p.become(sdk.Active)
			k.expect(t, service(1, 1))
			end()
			k.flush()
			eventually.Pass(3 * probeEvery)
			if k.differs() != nil {
				t.Errorf("a process that %s restored what was removed", what)
			}
			p.configure(sdk.Setup{})
			p.become(sdk.Active)
			p.full(service(1, 1))
		}
	})
}

// A probed is a family in memory whose findings come from the test.
type probed struct {
	*memory
	found    chan Finding
	rendered int             // how often a Service was rendered
	forgot   [][]sdk.Service // the arguments of Forget
}

func newProbed(k *kernel) *probed {
	return &probed{memory: newMemory(sdk.IPv4, k), found: make(chan Finding)}
}

func (f *probed) Forget(_ sdk.Family, services []sdk.Service, _ func()) (int, error) {
	f.forgot = append(f.forgot, services)
	return 0, nil
}

func (f *probed) Want(s sdk.Service) (*sdk.Service, error) { f.rendered++; return f.memory.Want(s) }

func (f *probed) Probe(context.Context) Finding {
	select {
	case found := <-f.found:
		return found
	default:
		return Finding{}
	}
}

// TestMovedAndDue: Due and Moved have the monitor write without a repair. Only Moved renders all
// Services again.
func TestMovedAndDue(t *testing.T) {
	t.Parallel()
	k := newKernel()
	f := newProbed(k)
	wake := make(chan struct{})
	p := startMode(t, opening(k, func(s *Session[*sdk.Service]) { s.Families, s.Wake = []Family[*sdk.Service]{f}, wake }), t.TempDir())
	p.full(service(1, 1), service(2, 1))
	find := func(found Finding) {
		p.paused(func() {
			f.rendered = 0
			f.touched[service(1, 0).Name] = true
			delete(f.have, service(1, 0).Name)
			k.flush()
		})
		select {
		case wake <- struct{}{}:
		case f.found <- found: // the monitor probed at its interval
			return
		}
		f.found <- found
	}
	find(Finding{Due: true})
	eventually.True(t, "Due: the Service is written", func() bool { return k.differs(service(1, 1)) == nil })
	if f.rendered > 0 {
		t.Errorf("Due: %d Services were rendered", f.rendered)
	}
	find(Finding{Moved: true})
	eventually.True(t, "Moved: the Service is written", func() bool { return k.differs(service(1, 1)) == nil })
	if f.rendered != 2 {
		t.Errorf("Moved: %d of 2 Services were rendered", f.rendered)
	}
	if n := p.Report().Repaired; n > 0 {
		t.Errorf("%d repairs are reported", n)
	}
	if len(f.forgot) > 0 {
		t.Errorf("flows of %v were deleted", f.forgot)
	}
	find(Finding{Lost: All, Why: "a test says so"})
	eventually.True(t, "Lost: both Services are written", func() bool { return k.differs(service(1, 1), service(2, 1)) == nil })
	eventually.True(t, "the repair is counted", func() bool { return p.Report().Repaired == 1 })
	if text := p.Report().Repair; !strings.Contains(text, "a test says so; restored in ") {
		t.Errorf("the repair is %q", text)
	}
	f.found <- Finding{Unsure: true}
	f.found <- Finding{Unsure: true} // the first one is handled by now
	if r := p.Report(); !strings.Contains(r.Lost, "a test says so") {
		t.Errorf("before another probe had a result, %q is lost", r.Lost)
	}
	f.found <- Finding{}
	eventually.True(t, "nothing is lost", func() bool { return p.Report().Lost == "" })
}

// TestDueForgetsFlows: after a write that was due, the UDP flows of all Services are checked while the role is
// Active.
func TestDueForgetsFlows(t *testing.T) {
	t.Parallel()
	k := newKernel()
	f := newProbed(k)
	p := startMode(t, opening(k, only(f)), t.TempDir())
	udp := service(1, 1)
	udp.Name.Protocol = sdk.UDP
	p.full(udp, service(2, 1))
	forgotten := func() (n int) {
		f.found <- Finding{Due: true}
		f.found <- Finding{} // the finding before is handled by now
		p.paused(func() {
			for _, services := range f.forgot {
				n += len(services)
			}
			f.forgot = nil
		})
		return n
	}
	if n := forgotten(); n != 0 {
		t.Errorf("in Standby flows of %d Services were checked", n)
	}
	p.become(sdk.Active)
	p.paused(func() { f.forgot = nil })
	if n := forgotten(); n != 1 {
		t.Errorf("flows of %d Services were checked, want those of the UDP Service", n)
	}
}
