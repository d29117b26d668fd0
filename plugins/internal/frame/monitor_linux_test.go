// SPDX-License-Identifier: Apache-2.0

package frame

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
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
		k.do(func() { k.fail = func() error { return nil } })
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
	found    Finding
	rendered int        // how often a Service was rendered
	forgot   []sdk.Name // the Services in calls of Forget
	early    []string   // the Services in each call of ForgetEarly
}

func (f *probed) Forget(_ sdk.Family, services []sdk.Service, _ func()) (int, error) {
	for _, svc := range services {
		f.forgot = append(f.forgot, svc.Name)
	}
	return 0, nil
}

func (f *probed) ForgetEarly(_ sdk.Family, services []sdk.Service, _ func()) (int, error) {
	var names []string
	for _, svc := range services {
		names = append(names, svc.Name.Service)
	}
	slices.Sort(names)
	f.early = append(f.early, strings.Join(names, " "))
	return 0, nil
}

func (f *probed) Want(s sdk.Service) (*sdk.Service, error) { f.rendered++; return f.memory.Want(s) }
func (f *probed) Probe(context.Context) Finding            { return f.found }

// startProbed starts a process with such a family. find has the monitor's check find something once.
func startProbed(t *testing.T, k *kernel) (p *process, f *probed, find func(Finding)) {
	t.Helper()
	f = &probed{memory: newMemory(sdk.IPv4, k)}
	p = startMode(t, opening(k, only(f)), t.TempDir())
	return p, f, func(found Finding) {
		p.paused(func() {
			f.found, f.rendered, f.forgot = found, 0, nil
			p.check(t.Context())
			f.found = Finding{Unsure: true}
		})
	}
}

// TestMovedAndDue: Due and Moved have the monitor write without a repair. Only Moved renders all
// Services again.
func TestMovedAndDue(t *testing.T) {
	t.Parallel()
	k := newKernel()
	p, f, find := startProbed(t, k)
	p.full(service(1, 1), service(2, 1))
	lose := func() { p.paused(func() { delete(f.have, service(1, 0).Name); k.flush() }) }
	for found, rendered := range map[Finding]int{{Due: true}: 0, {Moved: true}: 2} {
		lose()
		find(found)
		if k.expect(t, service(1, 1)); f.rendered != rendered {
			t.Errorf("%+v: %d Services were rendered, want %d", found, f.rendered, rendered)
		}
	}
	if n := p.Report().Repaired; n > 0 {
		t.Errorf("%d repairs are reported", n)
	}
	lose()
	find(Finding{Lost: All, Why: "a test says so"})
	k.expect(t, service(1, 1), service(2, 1))
	if r := p.Report(); r.Repaired != 1 || !strings.Contains(r.Repair, "a test says so; restored in ") {
		t.Errorf("%d repairs are reported, the last is %q", r.Repaired, r.Repair)
	}
	for found, lost := range map[Finding]bool{{Unsure: true}: true, {}: false} {
		p.paused(func() { p.families[0].lost = "a test says so" })
		if find(found); strings.Contains(p.Report().Lost, "a test says so") != lost {
			t.Errorf("after %+v %q is lost", found, p.Report().Lost)
		}
	}
}

// TestForgetsFlows: the UDP flows of changed Services are checked while the role is Active, and those of all Services
// after a write that was due. The flows of Services that failed stay.
func TestForgetsFlows(t *testing.T) {
	t.Parallel()
	k := newKernel()
	p, f, find := startProbed(t, k)
	dns, ntp := service(1, 1), service(2, 1)
	dns.Name.Protocol, ntp.Name.Protocol = sdk.UDP, sdk.UDP
	forgot := func(when string, want ...sdk.Name) {
		t.Helper()
		p.paused(func() {
			slices.SortFunc(f.forgot, sdk.Name.Compare)
			if !slices.Equal(f.forgot, want) {
				t.Errorf("%s: flows of %v were checked, want %v", when, f.forgot, want)
			}
			f.forgot = nil
		})
	}
	p.full(dns, ntp, service(3, 1))
	find(Finding{Due: true})
	forgot("in Standby")
	p.become(sdk.Active)
	forgot("becoming Active", dns.Name, ntp.Name)
	dns.Cluster = service(1, 2).Cluster
	p.set(dns, service(3, 2))
	forgot("a change", dns.Name)
	find(Finding{Due: true})
	forgot("a write that was due", dns.Name, ntp.Name)
	k.do(func() {
		k.refuse = func(n sdk.Name) error { return map[bool]error{n == dns.Name: errors.New("no")}[true] }
	})
	dns.Cluster, ntp.Cluster = service(1, 3).Cluster, service(1, 3).Cluster
	p.set(dns, ntp)
	forgot("one failed", ntp.Name)
}

// TestForgetsEarly: after an update with a new TCP frontend, the monitor of an Active process looks once for connections
// to its Service that began before.
func TestForgetsEarly(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		k := newKernel()
		p, f, find := startProbed(t, k)
		more := service(2, 1)
		more.Frontends = append(more.Frontends, service(3, 1).Frontends...)
		udp := service(4, 1)
		udp.Name.Protocol = sdk.UDP
		for _, c := range []struct {
			when string
			does func()
			want []string
		}{
			{"in Standby", func() { p.full(service(1, 1), service(9, 1)) }, nil},
			{"Active", func() { p.become(sdk.Active) }, []string{"web-001 web-009"}},
			{"other endpoints", func() { p.set(service(1, 2)) }, nil},
			{"a new Service", func() { p.set(service(2, 1), service(1, 1)) }, []string{"web-002"}},
			{"a new frontend", func() { p.set(more) }, []string{"web-002"}},
			{"a new UDP Service", func() { p.set(udp) }, nil},
			{"a Full", func() { p.full(service(1, 1), more) }, []string{"web-001 web-002"}},
			{"a new Service that fails", func() {
				k.do(func() { k.refuse = func(sdk.Name) error { return errors.New("no") } })
				p.set(service(5, 1))
			}, []string{"", ""}},
			{"it is served at the next try", func() {
				k.do(func() { k.refuse = func(sdk.Name) error { return nil } })
				p.set(service(5, 1))
			}, []string{"web-005"}},
		} {
			c.does()
			p.paused(func() { f.early, p.early.due = nil, time.Time{} })
			for range 2 {
				find(Finding{})
				p.paused(func() { p.early.due = time.Time{} })
			}
			p.paused(func() {
				if !slices.Equal(f.early, c.want) {
					t.Errorf("%s: looked at %q, want %q", c.when, f.early, c.want)
				}
			})
		}
	})
}
