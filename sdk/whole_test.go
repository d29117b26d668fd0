// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// A witness has a function for Whole that records its arguments.
type witness struct {
	calls []string
	err   error
}

func (w *witness) serve(_ context.Context, s State) error {
	var words []string
	for _, name := range slices.SortedFunc(maps.Keys(s.Services), Name.Compare) {
		words = append(words, fmt.Sprintf("%s=%d", name.Service, s.Services[name].HealthPort))
	}
	for _, name := range slices.SortedFunc(maps.Keys(s.Kept), Name.Compare) {
		words = append(words, "keep "+name.Service)
	}
	w.calls = append(w.calls, s.Node.Name+"["+strings.Join(words, " ")+"]")
	return w.err
}

// take returns the calls since the last call of take.
func (w *witness) take() string {
	calls := strings.Join(w.calls, " ")
	w.calls = nil
	return calls
}

func svc(service string, version uint16) Service {
	return Service{Name: Name{Namespace: "ns1", Service: service, Protocol: TCP, Family: IPv4}, HealthPort: version}
}

func begun(t *testing.T, d Description) (*witness, Dataplane) {
	t.Helper()
	w := &witness{}
	dp := Whole(d, w.serve)
	if _, err := dp.Configure(t.Context(), Setup{}); err != nil {
		t.Fatal(err)
	}
	return w, dp
}

// takes sends an update that must succeed.
func takes(t *testing.T, dp Dataplane, u Update) {
	t.Helper()
	if r, err := dp.Sync(t.Context(), u); err != nil || len(r.Failed) > 0 {
		t.Fatalf("sync: %+v, %v", r, err)
	}
}

func expect(t *testing.T, w *witness, want string) {
	t.Helper()
	if got := w.take(); got != want {
		t.Errorf("the function received %q, want %q", got, want)
	}
}

func TestWholeServesAll(t *testing.T) {
	w, dp := begun(t, Description{Name: "test"})
	takes(t, dp, Update{To: 1, Full: true, Node: &Node{Name: "n1"}, Set: []Service{svc("a", 1), svc("b", 1)}})
	expect(t, w, "n1[a=1 b=1]")
	takes(t, dp, Update{From: 1, To: 2, Set: []Service{svc("a", 2)}})
	expect(t, w, "n1[a=2 b=1]")
	takes(t, dp, Update{From: 2, To: 3, Node: &Node{Name: "n2"}, Delete: []Name{svc("b", 0).Name}})
	expect(t, w, "n2[a=2]")
	c := svc("c", 1)
	c.Frontends = []Frontend{{Kind: ClusterIP, Addr: netip.MustParseAddrPort("10.96.0.1:80"), Policy: Cluster}}
	takes(t, dp, Update{To: 4, Full: true, Set: []Service{c}})
	expect(t, w, "n2[c=1]")
	if ready := dp.(*whole).ready; len(ready) > 0 {
		t.Errorf("%v is stored for Inspect, which the dataplane does not have", ready)
	}
}

func TestWholeResync(t *testing.T) {
	w, dp := begun(t, Description{Name: "test"})
	for _, u := range []Update{{To: 1}, {From: 4, To: 5}} {
		if _, err := dp.Sync(t.Context(), u); !errors.Is(err, ErrResync) {
			t.Errorf("%+v: %v", u, err)
		}
	}
	takes(t, dp, Update{To: 1, Full: true})
	w.take()
	if _, err := dp.Configure(t.Context(), Setup{Options: []byte("{}")}); err != nil {
		t.Fatal(err)
	}
	if _, err := dp.Sync(t.Context(), Update{From: 1, To: 2}); !errors.Is(err, ErrResync) {
		t.Errorf("after a new session: %v", err)
	}
	expect(t, w, "")
}

// TestWholeAfterError: after an error the next update leads from the last acknowledged revision.
func TestWholeAfterError(t *testing.T) {
	w, dp := begun(t, Description{Name: "test"})
	takes(t, dp, Update{To: 1, Full: true, Set: []Service{svc("a", 1)}})
	w.take()
	w.err = errors.New("the kernel is busy")
	if _, err := dp.Sync(t.Context(), Update{From: 1, To: 2, Set: []Service{svc("b", 1)}}); !errors.Is(err, w.err) {
		t.Errorf("sync: %v", err)
	}
	expect(t, w, "[a=1 b=1]")
	w.err = nil
	if _, err := dp.Sync(t.Context(), Update{From: 2, To: 3}); !errors.Is(err, ErrResync) {
		t.Errorf("an update from a revision that was not acknowledged: %v", err)
	}
	takes(t, dp, Update{From: 1, To: 3, Set: []Service{svc("b", 2)}})
	expect(t, w, "[a=1 b=2]")
}

// TestWholeRoles: the arguments of the function for each change of role.
func TestWholeRoles(t *testing.T) {
	given := map[Role]string{Standby: "[]", Active: "[a=1]", Draining: "[]", Yielded: ""}
	for from := range given {
		for to := range given {
			w, dp := begun(t, Description{Name: "test"})
			takes(t, dp, Update{To: 1, Full: true, Set: []Service{svc("a", 1)}})
			if err := dp.SetRole(t.Context(), from); err != nil {
				t.Fatal(err)
			}
			w.take()
			if err := dp.SetRole(t.Context(), to); err != nil {
				t.Fatal(err)
			}
			want := given[to]
			if from == to {
				want = ""
			}
			if got := w.take(); got != want {
				t.Errorf("from %s to %s the function received %q, want %q", from, to, got, want)
			}
			if to == Yielded {
				yielded(t, w, dp)
				continue
			}
			takes(t, dp, Update{From: 1, To: 2})
			expect(t, w, given[to])
		}
	}
}

// yielded checks that an update returns a *Busy and does not call the function.
func yielded(t *testing.T, w *witness, dp Dataplane) {
	t.Helper()
	if _, err := dp.Sync(t.Context(), Update{From: 1, To: 2, Set: []Service{svc("b", 1)}}); !errors.As(err, new(*Busy)) {
		t.Errorf("an update while yielded: %v", err)
	}
	expect(t, w, "")
}

// TestWholeYields: a dataplane that dies with its process closes its sockets when it yields, so that
// its successor can listen.
func TestWholeYields(t *testing.T) {
	w, dp := begun(t, Description{Name: "process", Limits: []Limit{LimitDiesWithProcess}})
	takes(t, dp, Update{To: 1, Full: true, Set: []Service{svc("a", 1)}})
	for _, c := range []struct {
		role  Role
		given string
	}{{Active, "[a=1]"}, {Yielded, "[]"}, {Active, "[a=1]"}} {
		w.take()
		if err := dp.SetRole(t.Context(), c.role); err != nil {
			t.Fatal(err)
		}
		expect(t, w, c.given)
	}
	if err := dp.SetRole(t.Context(), Yielded); err != nil {
		t.Fatal(err)
	}
	w.take()
	yielded(t, w, dp)
	if err := dp.SetRole(t.Context(), Active); err != nil {
		t.Fatal(err)
	}
	expect(t, w, "[a=1]")
	takes(t, dp, Update{From: 1, To: 2, Set: []Service{svc("b", 1)}})
	expect(t, w, "[a=1 b=1]")
}

func TestWholeRoleAtStart(t *testing.T) {
	full := Update{To: 1, Full: true, Set: []Service{svc("a", 1)}}
	w, dp := begun(t, Description{Name: "kernel"})
	takes(t, dp, full)
	expect(t, w, "[a=1]")

	w, dp = begun(t, Description{Name: "process", Limits: []Limit{LimitDiesWithProcess}})
	takes(t, dp, full)
	expect(t, w, "[]")
	if err := dp.SetRole(t.Context(), Active); err != nil {
		t.Fatal(err)
	}
	expect(t, w, "[a=1]")

	w, dp = begun(t, Description{Name: "early"})
	if err := dp.SetRole(t.Context(), Standby); err != nil {
		t.Fatal(err)
	}
	expect(t, w, "") // the desired state is not known yet, so nothing is removed
	takes(t, dp, full)
	expect(t, w, "[]")
}

// TestWholeRoleError: the role changes after the function has succeeded, and a retry calls it again.
func TestWholeRoleError(t *testing.T) {
	w, dp := begun(t, Description{Name: "test"})
	takes(t, dp, Update{To: 1, Full: true, Set: []Service{svc("a", 1)}})
	if err := dp.SetRole(t.Context(), Yielded); err != nil {
		t.Fatal(err)
	}
	w.take()
	w.err = errors.New("the kernel is busy")
	if err := dp.SetRole(t.Context(), Active); !errors.Is(err, w.err) {
		t.Errorf("set role: %v", err)
	}
	w.err = nil
	w.take()
	yielded(t, w, dp) // still
	if err := dp.SetRole(t.Context(), Active); err != nil {
		t.Fatal(err)
	}
	expect(t, w, "[a=1]")

	var refused *Refusal
	for _, role := range []Role{0, Yielded + 1} {
		if err := dp.SetRole(t.Context(), role); !errors.As(err, &refused) || refused.Field != "role" {
			t.Errorf("%s: %v", role, err)
		}
	}
}

func TestWholeRefusesOptions(t *testing.T) {
	dp := Whole(Description{Name: "test"}, (&witness{}).serve)
	for _, options := range []string{"", "{}", "null"} {
		if d, err := dp.Configure(t.Context(), Setup{Options: []byte(options)}); err != nil || d.Name != "test" {
			t.Errorf("%q: %+v, %v", options, d, err)
		}
	}
	_, err := dp.Configure(t.Context(), Setup{Options: []byte(`{"colour":"red"}`)})
	if want := "options: test has no options; try: remove them from the config file"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestWholeCleanup(t *testing.T) {
	for _, c := range []struct {
		name    string
		limits  []Limit
		serve   bool // first
		dry     bool
		err     error
		want    []string
		given   string
		andThen []string // what a dry run names afterwards
	}{
		{"in a new process", nil, false, false, nil, []string{"everything that test serves"}, "[]", nil},
		{"of what dies with its process", []Limit{LimitDiesWithProcess}, false, false, nil, nil, "", nil},
		{"of what is served", []Limit{LimitDiesWithProcess}, true, false, nil, []string{"everything that test serves"}, "[]", nil},
		{"dry run", nil, true, true, nil, []string{"everything that test serves"}, "", []string{"everything that test serves"}},
		{"that fails", nil, true, false, errors.New("busy"), []string{"everything that test serves"}, "[]", []string{"everything that test serves"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := &witness{}
			dp := Whole(Description{Name: "test", Limits: c.limits}, w.serve)
			if c.serve {
				if _, err := dp.Configure(t.Context(), Setup{}); err != nil {
					t.Fatal(err)
				}
				takes(t, dp, Update{To: 1, Full: true, Set: []Service{svc("a", 1)}})
			}
			w.take()
			w.err = c.err
			got, err := dp.Cleanup(t.Context(), Leftovers{DryRun: c.dry})
			if !slices.Equal(got, c.want) || !errors.Is(err, c.err) {
				t.Errorf("it named %q (%v), want %q", got, err, c.want)
			}
			expect(t, w, c.given)
			if got, err := dp.Cleanup(t.Context(), Leftovers{DryRun: true}); err != nil || !slices.Equal(got, c.andThen) {
				t.Errorf("afterwards a dry run names %q (%v), want %q", got, err, c.andThen)
			}
		})
	}
}

// TestWholeAfterCleanup: after Cleanup a Full is needed.
func TestWholeAfterCleanup(t *testing.T) {
	_, dp := begun(t, Description{Name: "test"})
	takes(t, dp, Update{To: 1, Full: true, Set: []Service{svc("a", 1)}})
	if _, err := dp.Cleanup(t.Context(), Leftovers{}); err != nil {
		t.Fatal(err)
	}
	if _, err := dp.Sync(t.Context(), Update{From: 1, To: 2}); !errors.Is(err, ErrResync) {
		t.Errorf("a delta after Cleanup: %v", err)
	}
	takes(t, dp, Update{To: 2, Full: true})
}
