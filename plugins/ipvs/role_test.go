// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
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

// An open is an established connection.
type open struct {
	at   serviceKey
	dest netip.AddrPort
}

// TestConnectionsSurviveEveryRole changes roles, applies updates and restarts the process in random order, while
// connections begin and end. For each connection the kernel must have the objects that it needs as long as it lasts.
// While Draining, the plugin must report the number of connections. In every role, Inspect must report what the plugin
// would serve in role Active.
func TestConnectionsSurviveEveryRole(t *testing.T) {
	for seed := range uint64(40) {
		w := roleWalk{instance: newInstance(t), Rand: rand.New(rand.NewPCG(seed, 14)), base: many(2), role: sdk.Active}
		w.scenario = w.base
		w.full()
		w.instance.role(sdk.Active)
		for step := range 40 {
			w.step()
			if wrong := w.wrong(); wrong != "" {
				t.Fatalf("seed %d, step %d, %s: %s", seed, step, w.role, wrong)
			}
		}
		w.leavesNothing(seed)
	}
}

// A roleWalk is a dataplane with the connections of its clients.
type roleWalk struct {
	*instance
	*rand.Rand
	base, scenario sdktest.Scenario // with all endpoints; with the present endpoints
	role           sdk.Role
	open           []open
}

func (w *roleWalk) full() {
	w.Helper()
	w.instance.full(w.scenario)
}

func (w *roleWalk) step() {
	w.Helper()
	switch w.IntN(8) {
	case 0, 1, 2:
		w.role = []sdk.Role{sdk.Standby, sdk.Active, sdk.Draining}[w.IntN(3)]
		w.instance.role(w.role)
	case 3: // remove an endpoint or add all again; at most once, add a Service
		if w.IntN(4) == 0 {
			w.base = many(3)
		}
		w.scenario = w.base
		w.scenario.Services = slices.Clone(w.base.Services)
		if i := w.IntN(len(w.base.Services)); w.IntN(2) == 0 {
			w.scenario.Services[i].Cluster = w.base.Services[i].Cluster[1:]
		}
		w.sync(sdk.Update{Set: w.scenario.Services})
	case 4:
		w.restart()
		w.full()
		w.instance.role(w.role)
	case 5:
		w.reap()
	case 6:
		if i := len(w.open); i > 0 {
			o := w.open[i-1]
			w.fake.open(o.at, o.dest, -1)
			w.open = w.open[:i-1]
		}
	case 7:
		w.call()
	}
}

// flows returns the number of connections that the plugin would report in Draining.
func (w *roleWalk) flows() (n int) {
	w.exclusively(func() {
		for _, f := range w.plugin.session.families {
			left, err := f.Flows(nil, true)
			if err != nil {
				w.Fatal(err)
			}
			n += left
		}
	})
	return n
}

// call opens a connection to a random destination that accepts one.
func (w *roleWalk) call() {
	w.fake.mu.Lock()
	var can []open
	for at, s := range w.fake.services {
		for dest, weight := range s.dests {
			if weight > 0 {
				can = append(can, open{at, dest})
			}
		}
	}
	w.fake.mu.Unlock()
	if len(can) > 0 {
		o := can[w.IntN(len(can))]
		w.fake.open(o.at, o.dest, 1)
		w.open = append(w.open, o)
	}
}

// wrong returns the first violation that it finds, or "".
func (w *roleWalk) wrong() string {
	if wrong := w.lacks(); wrong != "" {
		return wrong
	}
	if flows := w.flows(); w.role == sdk.Draining && flows != len(w.open) {
		return fmt.Sprintf("Flows returned %d connections, want %d", flows, len(w.open))
	}
	return w.unreported()
}

// lacks returns the first object that a connection or the role needs and the kernel does not have, or "".
func (w *roleWalk) lacks() string {
	w.fake.mu.Lock()
	defer w.fake.mu.Unlock()
	left := make(map[open]int)
	for _, o := range w.open {
		left[o]++
		s, there := w.fake.services[o.at]
		addr := o.at.addr.Addr()
		switch {
		case !there:
			return fmt.Sprintf("%s was removed although it has a connection to %s", o.at, o.dest)
		case !w.fake.ours[addr] && !w.fake.others[addr]:
			return fmt.Sprintf("the node lacks %s, to which there is a connection", addr)
		case s.conns[o.dest] < left[o]:
			return fmt.Sprintf("%s had %d connections to %s, and knows of %d", o.at, left[o], o.dest, s.conns[o.dest])
		}
	}
	for _, j := range permanentJumps() {
		if len(w.open) > 0 && !slices.Contains(w.fake.tables[sdk.IPv4][j.At], j.Rule) {
			return fmt.Sprintf("there are connections, and no %s in %s", j.Rule, j.At)
		}
	}
	for _, svc := range w.scenario.Services {
		if at := (serviceKey{family: sdk.IPv4, protocol: sdk.TCP, addr: svc.Frontends[0].Addr}); w.fake.services[at] == nil {
			return fmt.Sprintf("there is no %s, so it is not ready to be Active", at)
		}
	}
	return ""
}

// unreported returns a frontend for which Inspect reports other endpoints than desired, or "".
func (w *roleWalk) unreported() (wrong string) {
	answer := 0
	err := w.plugin.Inspect(w.Context(), func(s sdk.Served) error {
		answer++
		i := slices.IndexFunc(w.scenario.Services, func(svc sdk.Service) bool { return svc.Name == s.Name })
		if want := addrs(w.scenario.Services[i].Cluster); !slices.Equal(s.Endpoints, want) {
			wrong = fmt.Sprintf("Inspect reports %s at %s with endpoints %v, want %v", s.Name, s.Frontend, s.Endpoints, want)
		}
		return nil
	})
	if want := 2 * len(w.scenario.Services); err == nil && answer != want {
		return fmt.Sprintf("Inspect reports %d frontends, want %d", answer, want)
	}
	if err != nil {
		return err.Error()
	}
	return wrong
}

// leavesNothing ends all connections and checks that everything that was kept for them is removed: the result must
// equal a fresh start.
func (w *roleWalk) leavesNothing(seed uint64) {
	w.Helper()
	w.instance.role(sdk.Active)
	for _, o := range w.open {
		w.fake.open(o.at, o.dest, -1)
	}
	w.reap()
	fresh := newInstance(w.T)
	maps.Copy(fresh.fake.others, w.fake.others)
	fresh.full(w.scenario)
	fresh.role(sdk.Active)
	want, got := fresh.fake.snapshot(), w.fake.snapshot()
	if extra, lacks := lacking(got, want), lacking(want, got); extra+lacks != "" {
		w.Errorf("seed %d: after all connections have ended, the kernel has the extra objects\n%s\n\nand lacks\n%s", seed, extra, lacks)
	}
}

// TestRoleChangeWritesRulesOnce checks that a change of role writes the rules once in each family. During a swap the
// programs that write rules compete with clients for the CPUs.
func TestRoleChangeWritesRulesOnce(t *testing.T) {
	l := newInstance(t)
	l.full(many(3))
	for _, c := range []struct{ before, role sdk.Role }{
		{sdk.Standby, sdk.Active}, {sdk.Active, sdk.Draining}, {sdk.Draining, sdk.Active},
	} {
		l.role(c.before)
		l.fake.counted()
		l.role(c.role)
		writes := 0
		for _, request := range l.fake.counted() {
			if strings.HasPrefix(request, "rules:") {
				writes++
			}
		}
		if families := 2; writes != families {
			t.Errorf("the change from %s to %s wrote rules %d times for %d families", c.before, c.role, writes, families)
		}
	}
}
