// SPDX-License-Identifier: Apache-2.0

package frame

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/sysctl"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/test/eventually"
)

// A life is a process of the mode in memory, as a host sees it.
type life struct {
	*process
	t   *testing.T
	rev uint64
}

// begin starts a process, and a session.
func begin(t *testing.T, k *kernel, dir string) *life {
	t.Helper()
	return beginMode(t, k, inMemory(k), dir)
}

func beginMode(t *testing.T, k *kernel, m Mode[*sdk.Service], dir string) *life {
	t.Helper()
	l := &life{process: &process{New(m, dir), k}, t: t}
	t.Cleanup(func() { _ = l.Close() })
	l.configure()
	return l
}

func (l *life) configure() {
	l.t.Helper()
	if _, err := l.Configure(l.t.Context(), sdk.Setup{}); err != nil {
		l.t.Fatal(err)
	}
	l.rev = 0
}

func (l *life) become(r sdk.Role) {
	l.t.Helper()
	if err := l.SetRole(l.t.Context(), r); err != nil {
		l.t.Fatal(err)
	}
}

// full is the whole state.
func (l *life) full(services ...sdk.Service) sdk.Result {
	l.t.Helper()
	node := sdk.Node{Name: "n1"}
	return l.offer(sdk.Update{Full: true, Node: &node, Set: services})
}

func (l *life) set(services ...sdk.Service) sdk.Result {
	l.t.Helper()
	return l.offer(sdk.Update{Set: services})
}

func (l *life) offer(u sdk.Update) sdk.Result {
	l.t.Helper()
	if u.To = l.rev + 1; !u.Full {
		u.From = l.rev
	}
	r, err := l.Sync(l.t.Context(), u)
	if err != nil {
		l.t.Fatal(err)
	}
	l.rev = u.To
	return r
}

// service is the nth Service, with so many endpoints.
func service(n, endpoints int) sdk.Service {
	s := sdk.Service{
		Name:      sdk.Name{Namespace: "ns", Service: fmt.Sprintf("web-%03d", n), Protocol: sdk.TCP, Family: sdk.IPv4},
		Frontends: []sdk.Frontend{{Kind: sdk.ClusterIP, Policy: sdk.Cluster, Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{172, 30, byte(n >> 8), byte(n)}), 80)}},
	}
	for i := range endpoints {
		s.Cluster = append(s.Cluster, sdk.Endpoint{Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 180, byte(i >> 8), byte(i)}), 80)})
	}
	return s
}

// expect fails unless the kernel has exactly these Services.
func (k *kernel) expect(t *testing.T, services ...sdk.Service) {
	t.Helper()
	if err := k.differs(services); err != nil {
		t.Error(err)
	}
}

func (k *kernel) differs(services []sdk.Service) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(services) != len(k.served) {
		return fmt.Errorf("the kernel has %d Services, expected %d", len(k.served), len(services))
	}
	for _, s := range services {
		if have := k.served[s.Name]; !have.Equal(s) {
			return fmt.Errorf("the kernel has %v, expected %v", have, s)
		}
	}
	return nil
}

func (k *kernel) written() (n int) { k.do(func() { n = k.writes }); return n }
func (k *kernel) flush()           { k.do(func() { clear(k.served) }) }

// TestRoleBeforeFirstUpdate: a process that adopts what another one left writes nothing
// before it knows what is desired, in whichever role.
func TestRoleBeforeFirstUpdate(t *testing.T) {
	t.Parallel()
	k, dir := newKernel(), t.TempDir()
	first := begin(t, k, dir)
	first.full(service(1, 2))
	first.become(sdk.Active)
	_ = first.Close()
	before := k.written()
	second := begin(t, k, dir)
	for _, r := range []sdk.Role{sdk.Active, sdk.Draining, sdk.Standby, sdk.Yielded, sdk.Active, sdk.Standby} {
		second.become(r)
		k.expect(t, service(1, 2))
		if k.role != sdk.Active || k.written() != before {
			t.Errorf("%s before an update: the kernel's role is %s, %d were written", r, k.role, k.written()-before)
		}
	}
	second.full(service(1, 2))
	if k.role != sdk.Standby {
		t.Errorf("after the update the role is %s", k.role)
	}
	if k.written() != before {
		t.Error("what was there already was written again")
	}
}

// TestAdoptedRole: a process to which no role is said plays the one that the kernel shows.
func TestAdoptedRole(t *testing.T) {
	t.Parallel()
	for _, role := range []sdk.Role{sdk.Standby, sdk.Active, sdk.Draining} {
		k, dir := newKernel(), t.TempDir()
		k.role = role
		begin(t, k, dir).full(service(1, 1))
		if k.role != role {
			t.Errorf("%s was adopted as %s", role, k.role)
		}
	}
}

// TestWithoutLock: a second process plans, writes nothing, and takes over by itself.
func TestWithoutLock(t *testing.T) {
	t.Parallel()
	k, dir := newKernel(), t.TempDir()
	first := begin(t, k, dir)
	first.full(service(1, 1))
	first.become(sdk.Active)
	second := begin(t, k, dir)
	before := k.written()
	for i, r := range []sdk.Result{second.full(service(1, 1), service(2, 1)), second.set(service(3, 1))} {
		if !r.Planned || len(r.Steps) != 1+i {
			t.Errorf("without the lock: Planned %t, %q", r.Planned, r.Steps)
		}
	}
	second.become(sdk.Draining)
	if k.written() != before || k.role != sdk.Active {
		t.Error("it wrote without the lock")
	}
	if r := second.Report(); r.Lock != sdk.LockAwaited || r.Served != 0 {
		t.Errorf("without the lock it reports %+v", r)
	}
	k.expect(t, service(1, 1))
	second.become(sdk.Active)
	k.refuse = func(n sdk.Name) error { return map[bool]error{n.Service == "web-003": errors.New("no")}[true] }
	first.become(sdk.Yielded)
	eventually.True(t, "it takes over", func() bool { return second.Report().Served == 2 })
	k.expect(t, service(1, 1), service(2, 1))
	if r := second.Report(); r.Lock != sdk.LockHeld || len(r.Unserved) != 1 || r.Unserved[0].Name != service(3, 1).Name {
		t.Errorf("it reports %+v", r)
	}
	if r := first.full(service(9, 1)); !r.Planned {
		t.Error("one that has yielded wrote")
	}
}

// TestFailedKeepsWhatServes, whichever way the kernel refuses it, and everything else goes in.
func TestFailedKeepsWhatServes(t *testing.T) {
	t.Parallel()
	bad := map[sdk.Name]bool{service(3, 0).Name: true, service(17, 0).Name: true}
	no := func(n sdk.Name) error {
		if bad[n] {
			return errors.New("not this one")
		}
		return nil
	}
	for _, way := range []string{"refuse", "reject", "want"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			k := newKernel()
			l := begin(t, k, t.TempDir())
			before, after, expect := []sdk.Service{}, []sdk.Service{}, []sdk.Service{}
			for i := range 40 {
				if i != 17 {
					before = append(before, service(i, 1))
				}
				after = append(after, service(i, 2))
				switch {
				case !bad[service(i, 0).Name]:
					expect = append(expect, service(i, 2))
				case i != 17:
					expect = append(expect, service(i, 1))
				}
			}
			l.full(before...)
			switch way {
			case "refuse":
				k.refuse = no
			case "reject":
				k.reject = no
			case "want":
				for i := range after {
					if bad[after[i].Name] {
						after[i].Frontends[0].Policy = 99
					}
				}
			}
			for range 2 { // offered again, they fail again
				r := l.set(after...)
				var failed []sdk.Name
				for _, f := range r.Failed {
					failed = append(failed, f.Name)
				}
				if !slices.Equal(failed, slices.SortedFunc(maps.Keys(bad), sdk.Name.Compare)) {
					t.Errorf("failed: %v", failed)
				}
				k.expect(t, expect...)
			}
		})
	}
}

// TestRejectedWhilePlanned: a Service that was only planned, and is refused when it is
// written, keeps what the process before served it by.
func TestRejectedWhilePlanned(t *testing.T) {
	t.Parallel()
	k, dir := newKernel(), t.TempDir()
	first := begin(t, k, dir)
	first.full(service(1, 1), service(2, 1))
	second := begin(t, k, dir)
	second.full(service(1, 2), service(2, 2))
	k.reject = func(n sdk.Name) error { return map[bool]error{n.Service == "web-001": errors.New("no")}[true] }
	first.become(sdk.Yielded)
	eventually.True(t, "it takes over", func() bool { return second.Report().Served == 1 })
	k.expect(t, service(1, 1), service(2, 2))
}

// TestCutOff: whatever a call that failed or was cut off has left, the next one that is
// taken makes it right. The walk is random, and the same each time.
func TestCutOff(t *testing.T) {
	t.Parallel()
	k := newKernel()
	l := begin(t, k, t.TempDir())
	l.full()
	random := rand.New(rand.NewPCG(1, 2))
	desired := make(map[sdk.Name]sdk.Service)
	for range 200 {
		u := sdk.Update{From: l.rev, To: l.rev + 1}
		for _, i := range random.Perm(20)[:1+random.IntN(8)] {
			if s := service(i, 1+random.IntN(3)); random.IntN(4) == 0 {
				u.Delete = append(u.Delete, s.Name)
				delete(desired, s.Name)
			} else {
				u.Set = append(u.Set, s)
				desired[s.Name] = s
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		left, cut := random.IntN(12), random.IntN(2) == 0
		k.fail = func() error {
			if left--; left >= 0 {
				return nil
			}
			if cut {
				cancel()
				return nil
			}
			return errors.New("the kernel has no memory")
		}
		if _, err := l.Sync(ctx, u); err == nil {
			l.rev = u.To
		}
		cancel()
		k.fail = nil
		l.full(slices.Collect(maps.Values(desired))...)
		k.expect(t, slices.Collect(maps.Values(desired))...)
	}
}

// TestAfterFailure: a call that failed is put right by the monitor, if no other call comes.
func TestAfterFailure(t *testing.T) {
	t.Parallel()
	k := newKernel()
	l := begin(t, k, t.TempDir())
	l.full(service(1, 1))
	k.fail = func() error { return errors.New("the kernel has no memory") }
	if _, err := l.Sync(t.Context(), sdk.Update{From: 1, To: 2, Set: []sdk.Service{service(1, 2)}}); err == nil {
		t.Fatal("nothing failed")
	}
	l.semaphore.held <- struct{}{}
	k.fail = nil
	<-l.semaphore.held
	began := time.Now()
	eventually.True(t, "what is there is read again", func() bool { return k.differs([]sdk.Service{service(1, 2)}) == nil })
	if took := time.Since(began); took > retryMost-time.Second {
		t.Errorf("the first try came after %s", took)
	}
}

// TestRepair: what another process removes is restored, but not by a process that must not write.
func TestRepair(t *testing.T) {
	t.Parallel()
	k, dir := newKernel(), t.TempDir()
	l := begin(t, k, dir)
	l.full(service(1, 1))
	k.flush()
	eventually.True(t, "it is put back", func() bool { return l.Report().Repaired == 1 })
	k.expect(t, service(1, 1))
	for what, end := range map[string]func(){
		"yielded":    func() { l.become(sdk.Yielded) },
		"was closed": func() { _ = l.Close() },
	} {
		l.become(sdk.Active)
		k.expect(t, service(1, 1))
		end()
		k.flush()
		time.Sleep(3 * probeEvery)
		if k.differs(nil) != nil {
			t.Errorf("one that %s put it back", what)
		}
		l.configure()
		l.become(sdk.Active)
		l.full(service(1, 1))
	}
}

// TestStandsDown: what another process has cleaned up stays so, until the host says by a
// role that this one is to serve.
func TestStandsDown(t *testing.T) {
	t.Parallel()
	k, dir := newKernel(), t.TempDir()
	l := begin(t, k, dir)
	l.full(service(1, 1))
	l.become(sdk.Active)
	other := New(inMemory(k), dir)
	if gone, err := other.Cleanup(t.Context(), sdk.Leftovers{DryRun: true}); err != nil || len(gone) != 1 || l.cleaned().Left() {
		t.Fatal("a dry run:", gone, err)
	}
	if _, err := other.Cleanup(t.Context(), sdk.Leftovers{}); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "it stands down", func() bool { return l.Report().Lock == sdk.LockReleased })
	k.expect(t)
	if r := l.set(service(2, 1)); !r.Planned {
		t.Error("it wrote, though another process had cleaned up")
	}
	l.become(sdk.Active)
	k.expect(t, service(1, 1), service(2, 1))
}

// TestCleanup: after its own Cleanup a process begins with a Full.
func TestCleanup(t *testing.T) {
	t.Parallel()
	k := newKernel()
	l := begin(t, k, t.TempDir())
	l.full(service(1, 1))
	if _, err := l.Cleanup(t.Context(), sdk.Leftovers{}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * probeEvery)
	k.expect(t)
	if _, err := l.Sync(t.Context(), sdk.Update{From: 1, To: 2}); !errors.Is(err, sdk.ErrResync) {
		t.Error("an update after Cleanup:", err)
	}
	l.full(service(1, 1))
	k.expect(t, service(1, 1))
}

// TestFlows: connections are counted while draining, and only if they may be its own.
func TestFlows(t *testing.T) {
	t.Parallel()
	k, dir := newKernel(), t.TempDir()
	l := begin(t, k, dir)
	l.full(service(1, 1))
	l.become(sdk.Draining)
	time.Sleep(2 * probeEvery)
	if n := l.Report().Flows; n != 0 {
		t.Errorf("one that never was Active has %d connections", n)
	}
	l.become(sdk.Active)
	l.become(sdk.Draining)
	if l.Report().Flows == 0 {
		t.Error("before they were counted there are none")
	}
	eventually.True(t, "they are counted", func() bool { return l.Report().Flows == 4 }) // two in each family
	l.become(sdk.Standby)
	if n := l.Report().Flows; n != 0 {
		t.Errorf("in Standby there are %d", n)
	}
}

// TestUnlocked: where nothing outlives the process there is no lock, and two do not wait for
// one another.
func TestUnlocked(t *testing.T) {
	t.Parallel()
	k, dir := newKernel(), t.TempDir()
	mode := inMemory(k)
	open := mode.Open
	mode.Open = func(ctx context.Context, setup sdk.Setup, env Env) (Session[*sdk.Service], error) {
		s, err := open(ctx, setup, env)
		s.Unlocked = true
		return s, err
	}
	first, second := beginMode(t, k, mode, dir), beginMode(t, k, mode, dir)
	first.full(service(1, 1))
	if r := second.full(service(2, 1)); r.Planned {
		t.Error("the second only planned")
	}
	second.become(sdk.Yielded)
	if r := second.set(service(3, 1)); !r.Planned {
		t.Error("one that has yielded wrote")
	}
	k.expect(t, service(2, 1))
	second.become(sdk.Active)
	k.expect(t, service(2, 1), service(3, 1))
	if r := second.Report(); r.Lock != sdk.LockUnused {
		t.Errorf("its lock is %s", r.Lock)
	}
}

// TestUnservedFamily: what no family serves fails, and says what would help.
func TestUnservedFamily(t *testing.T) {
	t.Parallel()
	k := newKernel()
	mode := inMemory(k)
	mode.Open = func(context.Context, sdk.Setup, Env) (Session[*sdk.Service], error) {
		return Session[*sdk.Service]{Families: []Family[*sdk.Service]{newMemory(sdk.IPv4, k)}}, nil
	}
	l := beginMode(t, k, mode, t.TempDir())
	six := service(2, 0)
	six.Name.Family = sdk.IPv6
	six.Frontends[0].Addr = netip.MustParseAddrPort("[fd00::1]:80")
	r := l.full(service(1, 1), six)
	if len(r.Failed) != 1 || r.Failed[0].Name != six.Name || !errors.As(r.Failed[0].Err, new(*sdk.Refusal)) {
		t.Errorf("failed: %v", r.Failed)
	}
	k.expect(t, service(1, 1))
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
}

// TestSettings: what must be there first is set before anything is written, the others once
// it is Active, and what is no longer asked for is given back.
func TestSettings(t *testing.T) {
	t.Parallel()
	k, dir := newKernel(), t.TempDir()
	first, later := filepath.Join(dir, "first"), filepath.Join(dir, "later")
	values := func() string {
		a, _ := os.ReadFile(first)
		b, _ := os.ReadFile(later)
		return strings.TrimSpace(string(a)) + " " + strings.TrimSpace(string(b))
	}
	for _, path := range []string{first, later} {
		if err := os.WriteFile(path, []byte("0"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	mode := inMemory(k)
	open := mode.Open
	mode.Open = func(ctx context.Context, setup sdk.Setup, env Env) (Session[*sdk.Service], error) {
		s, err := open(ctx, setup, env)
		s.Settings = func(n sdk.Node) sysctl.Settings {
			all := sysctl.Settings{{Path: first, Value: "1", Must: true, First: true}}
			if n.Conntrack.Max > 0 {
				all = append(all, sysctl.Setting{Path: later, Value: "1", Must: true})
			}
			return all
		}
		return s, err
	}
	mode.Sweep = func(_ context.Context, l sdk.Leftovers, env Env) ([]string, error) { return env.GiveBack(l) }
	l := beginMode(t, k, mode, dir)
	expect := func(when, want string) {
		t.Helper()
		if got := values(); got != want {
			t.Errorf("%s they are %s, not %s", when, got, want)
		}
	}
	l.become(sdk.Active)
	expect("before an update", "0 0")
	l.become(sdk.Standby)
	node := sdk.Node{Name: "n1", Conntrack: sdk.ConntrackLimits{Max: 1}}
	l.offer(sdk.Update{Full: true, Node: &node})
	expect("in Standby", "1 0")
	l.become(sdk.Active)
	expect("once Active", "1 1")
	l.offer(sdk.Update{Node: &sdk.Node{Name: "n1"}})
	expect("when one is no longer asked for", "1 0")
	if _, err := l.Cleanup(t.Context(), sdk.Leftovers{}); err != nil {
		t.Fatal(err)
	}
	expect("cleaned up", "0 0")
	if _, err := l.Configure(t.Context(), sdk.Setup{Sysctls: sdk.ExpectSysctls}); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Sync(t.Context(), sdk.Update{Full: true, To: 1, Node: &node}); !errors.As(err, new(*sdk.Refusal)) {
		t.Error("another program is to set them, and they are not set:", err)
	}
	expect("when another program is to set them", "0 0")
}
