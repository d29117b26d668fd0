// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest"
)

// An instance is one dataplane process on a fake, or on this machine.
type instance struct {
	*testing.T
	fake     *fake
	machine  machine
	options  string
	dir      string
	plugin   *plugin
	revision uint64
}

func newInstance(t *testing.T) *instance {
	f := newFake(t)
	l := &instance{T: t, fake: f, machine: f.edges(), dir: t.TempDir()}
	l.begin()
	t.Cleanup(l.end)
	return l
}

func (l *instance) begin() {
	l.Helper()
	l.plugin, l.revision = newPlugin(l.dir, l.machine), 0
	if _, err := l.plugin.Configure(l.Context(), sdk.Setup{Options: []byte(l.options)}); err != nil {
		l.Fatal(err)
	}
}

// end closes the dataplane as a kill does: the lock is released, and nothing else happens.
func (l *instance) end() {
	l.Helper()
	if err := l.plugin.Close(); err != nil {
		l.Fatal(err)
	}
}

func (l *instance) restart() {
	l.Helper()
	l.end()
	l.begin()
}

// start returns an instance that serves the Services of a scenario.
func start(t *testing.T, s sdktest.Scenario) *instance {
	t.Helper()
	l := newInstance(t)
	l.full(s)
	l.role(sdk.Active)
	return l
}

// full serves exactly the Services of a scenario.
func (l *instance) full(s sdktest.Scenario) {
	l.Helper()
	(&fakeTestbed{fake: l.fake}).Place(s)
	l.sync(s.Update(0))
}

// trySync sends an update and returns the errors of the Services that the dataplane could not serve.
func (l *instance) trySync(u sdk.Update) (failed map[sdk.Name]error, err error) {
	u.From, u.To = l.revision, l.revision+1
	if u.Full {
		u.From = 0
	}
	result, err := l.plugin.Sync(l.Context(), u)
	if err == nil {
		l.revision = u.To
	}
	failed = make(map[sdk.Name]error)
	for _, f := range result.Failed {
		failed[f.Name] = f.Err
	}
	return failed, err
}

func (l *instance) sync(u sdk.Update) {
	l.Helper()
	if failed, err := l.trySync(u); err != nil || len(failed) > 0 {
		l.Fatal(failed, err)
	}
}

func (l *instance) role(r sdk.Role) {
	l.Helper()
	if err := l.plugin.SetRole(l.Context(), r); err != nil {
		l.Fatal(err)
	}
}

// reap does the work that the monitor does every minute.
func (l *instance) reap() {
	l.Helper()
	l.exclusively(func() {
		if err := l.plugin.reap(l.Context()); err != nil {
			l.Fatal(err)
		}
	})
}

func (p *plugin) reap(ctx context.Context) error {
	var errs []error
	for _, f := range p.session.families {
		due, err := f.reapDrained()
		if err == nil && due {
			_, err = f.Plan().Apply(ctx)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// snapshot returns all objects of the kernel as sorted lines. It replaces marks by the name of their Service.
func (f *fake) snapshot() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var lines []string
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	marks := make(map[uint32]string)
	for name, s := range f.sets {
		add("set %s %s", name, s.create)
		for e, rest := range s.entries {
			n := readNote(" " + rest)
			if n.mark != 0 {
				marks[n.mark] = n.comment
			}
			add("in %s: %s %q", name, e, n.comment)
		}
	}
	for at, s := range f.services {
		name := at.String()
		if at.mark != 0 {
			name = fmt.Sprintf("mark of %s %s", marks[at.mark], at.family)
		}
		add("server %s %s %#x", name, s.scheduling, s.flags)
		for dest, weight := range s.dests {
			add("server %s: %s weight %d", name, dest, weight)
		}
	}
	for a := range f.ours {
		add("address %s", a)
	}
	for of, tables := range f.tables {
		for id, rules := range tables {
			for i, r := range rules {
				add("%s %s %03d: %s", of, id, i, r)
			}
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// lacking returns the lines of a that are not in b.
func lacking(a, b string) string {
	has := make(map[string]bool)
	for line := range strings.Lines(b) {
		has[strings.TrimSpace(line)] = true
	}
	var out []string
	for line := range strings.Lines(a) {
		if line = strings.TrimSpace(line); !has[line] {
			out = append(out, line)
		}
	}
	return strings.Join(out, "\n")
}

// After any sequence of scenarios, roles, kills and restarts, the kernel has the same objects as after a fresh start.
func TestRandomChangesEndLikeAFreshStart(t *testing.T) {
	random := rand.New(rand.NewPCG(6, 1))
	scenarios := sdktest.Scenarios()
	roles := []sdk.Role{sdk.Standby, sdk.Active, sdk.Active, sdk.Active}
	walker := newInstance(t)
	for step := range 150 {
		s, role := scenarios[random.IntN(len(scenarios))], roles[random.IntN(len(roles))]
		if random.IntN(3) == 0 {
			walker.killed(s, random)
		}
		if random.IntN(4) == 0 {
			walker.restart()
		}
		walker.full(s)
		walker.role(role)
		walker.reap()
		if step%5 > 0 || role != sdk.Active { // Standby keeps what a former role has left
			continue
		}
		fresh := newInstance(t)
		maps.Copy(fresh.fake.others, walker.fake.others)
		fresh.full(s)
		fresh.role(role)
		if got, want := walker.fake.snapshot(), fresh.fake.snapshot(); got != want {
			t.Fatalf("step %d, %s: the kernel has the extra objects\n%s\n\nand lacks\n%s", step, s.Name, lacking(got, want), lacking(want, got))
		}
	}
}

// killed applies s until a random request fails, and restarts the process.
func (l *instance) killed(s sdktest.Scenario, random *rand.Rand) {
	l.Helper()
	left := random.IntN(30)
	l.fake.mu.Lock()
	l.fake.refuse = func(string) error {
		if left--; left < 0 {
			return errors.New("killed")
		}
		return nil
	}
	l.fake.mu.Unlock()
	(&fakeTestbed{fake: l.fake}).Place(s)
	_, _ = l.trySync(s.Update(0))
	_ = l.plugin.SetRole(l.Context(), sdk.Active)
	l.fake.mu.Lock()
	l.fake.refuse = nil
	l.fake.mu.Unlock()
	l.restart()
}

// many returns a scenario of n Services, each with two frontends and two endpoints.
func many(n int) sdktest.Scenario {
	s := sdktest.Scenarios()[slices.IndexFunc(sdktest.Scenarios(), func(s sdktest.Scenario) bool { return s.Name == "cluster-ip" })]
	s.Services = nil
	for i := range n {
		s.Services = append(s.Services, sdk.Service{
			Name: sdk.Name{Namespace: "ns", Service: fmt.Sprintf("s%d", i), Protocol: sdk.TCP, Family: sdk.IPv4},
			Frontends: []sdk.Frontend{
				{Kind: sdk.ClusterIP, Policy: sdk.Cluster, Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{172, 30, byte(i >> 8), byte(i)}), 80)},
				{Kind: sdk.NodePort, Policy: sdk.Cluster, Addr: netip.AddrPortFrom(netip.IPv4Unspecified(), uint16(20000+i))},
			},
			Cluster: []sdk.Endpoint{{Addr: endpoint(i, 1)}, {Addr: endpoint(i, 2)}},
		})
	}
	return s
}

func endpoint(service, i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 180 + byte(i), byte(service >> 8), byte(service)}), 8080)
}

// exclusively calls f while the plugin does not access the kernel.
func (l *instance) exclusively(f func()) {
	l.Helper()
	if err := l.plugin.Do(l.Context(), func(map[sdk.Name]sdk.Service) error { f(); return nil }); err != nil {
		l.Fatal(err)
	}
}
