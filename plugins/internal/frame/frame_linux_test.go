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
	"testing/synctest"

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

// inBubble runs a test in a bubble of testing/synctest, in which the monitor's clock passes as the test lets it.
func inBubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, test)
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

// holdsLock reports whether the process holds the writer's lock.
func (l *life) holdsLock() bool {
	if l.semaphore.take(l.t.Context()) != nil {
		return false
	}
	defer l.semaphore.done()
	return l.lock != nil
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
				k.do(func() { k.refuse = no })
			case "reject":
				k.do(func() { k.reject = no })
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
		fail := func() error {
			if left--; left >= 0 {
				return nil
			}
			if cut {
				cancel()
				return nil
			}
			return errors.New("the kernel has no memory")
		}
		k.do(func() { k.fail = fail })
		if _, err := l.Sync(ctx, u); err == nil {
			l.rev = u.To
		}
		cancel()
		k.do(func() { k.fail = nil })
		l.full(slices.Collect(maps.Values(desired))...)
		k.expect(t, slices.Collect(maps.Values(desired))...)
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
				all = append(all, sysctl.Setting{Path: later, Value: "1"})
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
	eventually.True(t, "it is known that they were set", func() bool {
		l.semaphore.held <- struct{}{}
		defer func() { <-l.semaphore.held }()
		return len(l.seen) == 2
	})
	for _, path := range []string{first, later} {
		if err := os.WriteFile(path, []byte("0"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	eventually.True(t, "what another program changed is set again, and the other noted", func() bool {
		return values() == "1 0" && strings.Contains(strings.Join(l.Report().Notes, ""), "another program has set "+later+" to 0")
	})
	if r := l.Report(); r.Repaired != 1 || !strings.Contains(r.Repair, first) {
		t.Errorf("reported are %d repairs, the last %q", r.Repaired, r.Repair)
	}
	if err := os.WriteFile(later, []byte("1"), 0o600); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "nothing is noted", func() bool { return len(l.Report().Notes) == 0 })
	l.offer(sdk.Update{Node: &sdk.Node{Name: "n1"}})
	expect("when one is no longer asked for", "1 0")
	if _, err := l.Cleanup(t.Context(), sdk.Leftovers{}); err != nil {
		t.Fatal(err)
	}
	expect("cleaned up", "0 0")
}
