// SPDX-License-Identifier: Apache-2.0

package frame

import (
	"context"
	"errors"
	"fmt"
	"maps"
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

// A process is a process of the mode in memory, as a host sees it.
type process struct {
	*Dataplane[*sdk.Service]
	t   *testing.T
	rev uint64
}

// inBubble runs a test in a bubble of testing/synctest, in which the test controls the monitor's clock.
func inBubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, test)
}

// start starts a process, and a session.
func start(t *testing.T, k *kernel, dir string) *process {
	t.Helper()
	return startMode(t, inMemory(k), dir)
}

func startMode(t *testing.T, m Mode[*sdk.Service], dir string) *process {
	t.Helper()
	p := &process{Dataplane: New(m, dir), t: t}
	t.Cleanup(func() { _ = p.Close() })
	p.configure(sdk.Setup{})
	return p
}

func (p *process) configure(setup sdk.Setup) {
	p.t.Helper()
	if _, err := p.Configure(p.t.Context(), setup); err != nil {
		p.t.Fatal(err)
	}
	p.rev = 0
}

// paused calls f while neither a call nor the monitor runs.
func (p *process) paused(f func()) {
	p.t.Helper()
	if err := p.Beside(context.Background(), func() error { f(); return nil }); err != nil {
		p.t.Fatal(err)
	}
}

// holdsLock reports whether the process holds the writer's lock.
func (p *process) holdsLock() (holds bool) {
	p.paused(func() { holds = p.lock != nil })
	return holds
}

func (p *process) become(r sdk.Role) {
	p.t.Helper()
	if err := p.SetRole(p.t.Context(), r); err != nil {
		p.t.Fatal(err)
	}
}

// full syncs the whole state.
func (p *process) full(services ...sdk.Service) sdk.Result {
	p.t.Helper()
	return p.sync(sdk.Update{Full: true, Node: &sdk.Node{Name: "n1"}, Set: services})
}

func (p *process) set(services ...sdk.Service) sdk.Result {
	p.t.Helper()
	return p.sync(sdk.Update{Set: services})
}

func (p *process) sync(u sdk.Update) sdk.Result {
	p.t.Helper()
	if u.To = p.rev + 1; !u.Full {
		u.From = p.rev
	}
	r, err := p.Sync(p.t.Context(), u)
	if err != nil {
		p.t.Fatal(err)
	}
	p.rev = u.To
	return r
}

// service returns the n-th Service, with a number of endpoints.
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
	if err := k.differs(services...); err != nil {
		t.Error(err)
	}
}

func (k *kernel) differs(services ...sdk.Service) error {
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

// TestRefusedKeepsWhatServes: a Service that the kernel refuses in any way keeps what served it, also what a former
// process wrote for it, and all others are written.
func TestRefusedKeepsWhatServes(t *testing.T) {
	t.Parallel()
	bad := map[sdk.Name]bool{service(3, 0).Name: true, service(17, 0).Name: true}
	refuse := func(n sdk.Name) error {
		if bad[n] {
			return errors.New("not this one")
		}
		return nil
	}
	for way, begin := range map[string]func(*kernel, []sdk.Service){
		"refuse": func(k *kernel, _ []sdk.Service) { k.refuse = refuse },
		"reject": func(k *kernel, _ []sdk.Service) { k.reject = refuse },
		"want": func(_ *kernel, after []sdk.Service) {
			after[3].Frontends[0].Policy, after[17].Frontends[0].Policy = 99, 99
		},
	} {
		for _, restart := range []bool{false, true} {
			t.Run(fmt.Sprint(way, " restart ", restart), func(t *testing.T) {
				t.Parallel()
				k, dir := newKernel(), t.TempDir()
				p := start(t, k, dir)
				var before, after, expect []sdk.Service
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
				p.full(before...)
				update := p.set
				if restart {
					_ = p.Close()
					p = start(t, k, dir)
					update = p.full
				}
				k.do(func() { begin(k, after) })
				for range 2 { // the second time they fail again
					var failed []sdk.Name
					for _, f := range update(after...).Failed {
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
}

// TestOneFamily: a node that cannot serve an IP family does not promise it, and refuses Services of that family.
func TestOneFamily(t *testing.T) {
	t.Parallel()
	k := newKernel()
	mode := opening(k, only(newMemory(sdk.IPv4, k)))
	mode.Description.Features = []sdk.Feature{sdk.FeatureIPv4, sdk.FeatureIPv6, sdk.FeatureUDP}
	p := startMode(t, mode, t.TempDir())
	if want := []sdk.Feature{sdk.FeatureIPv4, sdk.FeatureUDP}; !slices.Equal(p.description().Features, want) || len(mode.Description.Features) != 3 {
		t.Errorf("the features are %v, and those of the mode %v", p.description().Features, mode.Description.Features)
	}
	six := service(2, 0)
	six.Name.Family = sdk.IPv6
	six.Frontends[0].Addr = netip.MustParseAddrPort("[fd00::1]:80")
	r := p.full(service(1, 1), six)
	if len(r.Failed) != 1 || r.Failed[0].Name != six.Name || !errors.As(r.Failed[0].Err, new(*sdk.Refusal)) {
		t.Errorf("failed: %v", r.Failed)
	}
	k.expect(t, service(1, 1))
}

// TestSettings: kernel parameters with First are set before anything is written, the others once the
// role is Active. Those that are no longer needed are given back.
func TestSettings(t *testing.T) {
	t.Parallel()
	k, dir := newKernel(), t.TempDir()
	first, later := filepath.Join(dir, "first"), filepath.Join(dir, "later")
	write := func(path, value string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(value), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	values := func() string {
		a, _ := os.ReadFile(first)
		b, _ := os.ReadFile(later)
		return strings.TrimSpace(string(a)) + " " + strings.TrimSpace(string(b))
	}
	write(first, "0")
	write(later, "0")
	mode := opening(k, func(s *Session[*sdk.Service]) {
		s.Settings = func(n sdk.Node) sysctl.Settings {
			all := sysctl.Settings{{Path: first, Value: "1", Must: true, First: true}}
			if n.Conntrack.Max > 0 {
				all = append(all, sysctl.Setting{Path: later, Value: "1"})
			}
			return all
		}
	})
	mode.Sweep = func(_ context.Context, l sdk.Leftovers, env Env) ([]string, error) { return env.GiveBack(l) }
	p := startMode(t, mode, dir)
	expect := func(when, want string) {
		t.Helper()
		if got := values(); got != want {
			t.Errorf("%s: the values are %s, want %s", when, got, want)
		}
	}
	p.become(sdk.Active)
	expect("before an update", "0 0")
	p.become(sdk.Standby)
	node := sdk.Node{Name: "n1", Conntrack: sdk.ConntrackLimits{Max: 1}}
	p.sync(sdk.Update{Full: true, Node: &node})
	expect("in Standby", "1 0")
	p.become(sdk.Active)
	expect("in Active", "1 1")
	eventually.True(t, "both have matched", func() (both bool) {
		p.paused(func() { both = len(p.matched) == 2 })
		return both
	})
	write(first, "0")
	write(later, "0")
	eventually.True(t, "the first is set again, and the other is noted", func() bool {
		return values() == "1 0" && strings.Contains(strings.Join(p.Report().Notes, ""), "another program has set "+later+" to 0")
	})
	if r := p.Report(); r.Repaired != 1 || !strings.Contains(r.Repair, first) {
		t.Errorf("%d repairs are reported, the last is %q", r.Repaired, r.Repair)
	}
	write(later, "1")
	eventually.True(t, "nothing is noted", func() bool { return len(p.Report().Notes) == 0 })
	p.sync(sdk.Update{Node: &sdk.Node{Name: "n1"}})
	expect("when one is no longer needed", "1 0")
	if _, err := p.Cleanup(t.Context(), sdk.Leftovers{}); err != nil {
		t.Fatal(err)
	}
	expect("after Cleanup", "0 0")
}
