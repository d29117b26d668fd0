// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/plugins/internal/frame"
	"github.com/pointsman/pointsman/sdk"
)

// The mode of these tests is a small model of nf_tables: an index of frontends, endpoints by slot in containers, and counted
// endpoints.

// A piece has the frontends of a Service and its endpoints by slot.
type piece struct {
	frontends string // a letter each
	endpoints string
}

func (p piece) Equal(q piece) bool { return p == q }

// A key is a container, a frontend, a slot of a frontend, or a counted endpoint.
type key struct {
	kind string
	name byte
	slot int
}

type toy struct{}

func (toy) Entries(name sdk.Name, p piece, add func(key, string)) {
	for _, f := range []byte(p.frontends) {
		add(key{"frontend", f, 0}, name.Service)
		for slot, e := range []byte(p.endpoints) {
			add(key{"slot", f, slot}, string(e))
		}
	}
	if p.frontends != "" {
		for _, e := range []byte(p.endpoints) {
			add(key{"counted", e, 0}, "")
		}
	}
}

func (toy) Fixed(_ sdk.Role, need map[string]bool) map[key]string {
	all := map[key]string{{"container", 'f', 0}: "1", {"container", 'c', 0}: "1"}
	for slot := range 10 {
		if need[fmt.Sprint(slot)] {
			all[key{"container", 's', slot}] = "1"
		}
	}
	return all
}

func (toy) Kind(k key) Kind {
	switch k.kind {
	case "container":
		return Kind{Rebuild: true, Label: "container " + string(k.name)}
	case "frontend":
		return Kind{Container: "f", Label: "frontends", Remove: 1, Add: 1}
	case "slot":
		return Kind{Container: fmt.Sprint(k.slot), Label: "slots", Add: 1, Remove: 1}
	}
	return Kind{Counted: true, Container: "c", Label: "endpoints", Add: 1, Remove: 1}
}

func (toy) Parse(all map[key]string) (map[sdk.Name]piece, sdk.Role) {
	pieces := make(map[sdk.Name]piece)
	for k, v := range all {
		if k.kind != "frontend" {
			continue
		}
		name := sdk.Name{Service: v}
		p := pieces[name]
		p.frontends += string(k.name)
		var endpoints []byte
		for slot := 0; ; slot++ {
			e, is := all[key{"slot", k.name, slot}]
			if !is {
				break
			}
			endpoints = append(endpoints, e...)
		}
		if p.endpoints == "" {
			p.endpoints = string(endpoints)
		}
		letters := []byte(p.frontends)
		slices.Sort(letters)
		p.frontends = string(letters)
		pieces[name] = p
	}
	return pieces, sdk.Active
}

// A fakeKernel checks that each change fits what it has.
type fakeKernel struct {
	*testing.T
	entries map[key]string
	refuse  func(key, string) bool
	partial bool           // writes everything except what it refuses
	fail    int            // counts down to the Apply that stops after its first phase
	applied int            // number of batches that changed something
	keep    map[key]string // entries that must not be removed
}

func (f *fakeKernel) List(context.Context) (map[key]string, error) { return maps.Clone(f.entries), nil }

func (f *fakeKernel) Foreign(context.Context) (string, bool) { return "", false }

func (f *fakeKernel) Apply(_ context.Context, b Batch[key, string]) (refused map[key]error, err error) {
	written := false
	if len(b.Phases) > 0 || b.Rebuild {
		f.applied++
	}
	next := maps.Clone(f.entries)
	if b.Rebuild {
		next = make(map[key]string)
	}
	f.fail--
	refused = make(map[key]error)
	for _, phase := range b.Phases {
		seen := make(map[key]bool)
		for _, c := range phase {
			was, is := next[c.Key]
			if seen[c.Key] {
				f.Fatalf("%v changes twice in one phase", c.Key)
			}
			seen[c.Key] = true
			switch {
			case is != (c.Op != Add):
				f.Fatalf("%+v does not fit: it is there: %v", c, is)
			case c.Op != Add && was != c.Old:
				f.Fatalf("%+v does not fit: the kernel has %q", c, was)
			case c.Op != Remove && f.refuse != nil && f.refuse(c.Key, c.New):
				if refused[c.Key] = errors.New("refused"); f.partial {
					continue
				}
			}
			if c.Op == Remove {
				if _, keep := f.keep[c.Key]; keep {
					f.Fatalf("%v was removed", c.Key)
				}
				delete(next, c.Key)
			} else {
				next[c.Key] = c.New
			}
		}
		if len(refused) > 0 && !f.partial {
			if written {
				err = errors.New("refused after another phase")
			}
			return refused, err
		}
		f.entries = maps.Clone(next)
		if written = written || len(phase) > 0; f.fail == 0 {
			return nil, errors.New("cut off")
		}
	}
	for k := range f.entries {
		if k.kind == "slot" && !f.partial { // if the kernel is partial, the next batch may remove slots that another program has left
			if _, there := f.entries[key{"container", 's', k.slot}]; !there {
				f.Fatalf("%v has no container", k)
			}
		}
	}
	return refused, nil
}

// wanted returns the entries that the kernel should have.
func wanted(pieces map[sdk.Name]piece, have map[key]string) map[key]string {
	all := make(map[key]string)
	for name, p := range pieces {
		toy{}.Entries(name, p, func(k key, v string) { all[k] = v })
	}
	for k, v := range have {
		if k.kind == "container" {
			all[k] = v
		}
	}
	return all
}

// TestRandomLives compares the kernel with the desired pieces after each plan, while frontends move between Services,
// entries are refused, calls are interrupted, other programs remove entries, and processes restart.
func TestRandomLives(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 41))
		kernel := &fakeKernel{T: t, entries: make(map[key]string), partial: seed%2 == 1}
		r := New(toy{}, kernel)
		r.Batch, r.Partial = random.IntN(4), kernel.partial
		list(t, r)
		desired := make(map[sdk.Name]piece)
		for range 40 {
			changes := randomChanges(random, desired)
			r.SetDesired(changes)
			kernel.refuse, kernel.fail = nil, 0
			switch random.IntN(6) {
			case 0:
				counted := random.IntN(2) == 0
				kernel.refuse = func(k key, v string) bool {
					return k.kind == "slot" && v == "x" || counted && k == key{"counted", 'x', 0}
				}
			case 1:
				kernel.fail = 1 + random.IntN(2)
			case 2: // another program
				for k := range kernel.entries {
					if delete(kernel.entries, k); random.IntN(3) == 0 {
						break
					}
				}
				list(t, r)
			case 3: // the next process
				r = New(toy{}, kernel)
				r.Batch, r.Partial = random.IntN(4), kernel.partial
				list(t, r)
				r.SetDesired(desired)
				r.SetDesired(changes)
			}
			maps.Copy(desired, changes)
			if err := write(t, r, desired); err != nil {
				if kernel.refuse == nil && err.Error() != "cut off" {
					t.Fatalf("seed %d: %v", seed, err)
				}
				kernel.refuse, kernel.fail = nil, 0
				list(t, r)
				if err := write(t, r, desired); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
			}
			maps.DeleteFunc(desired, func(_ sdk.Name, p piece) bool { return p == piece{} })
			if !maps.Equal(r.Installed(), desired) {
				t.Fatalf("seed %d: installed %v, desired %v", seed, r.Installed(), desired)
			}
			if want := wanted(desired, kernel.entries); !maps.Equal(kernel.entries, want) {
				t.Fatalf("seed %d: the kernel has\n%v\nwant\n%v", seed, kernel.entries, want)
			}
		}
		writesNothing(t, seed, kernel, desired)
	}
}

// write applies plans until the kernel refuses nothing more. A refused Service keeps what it had, in desired too.
func write(t *testing.T, r *Reconciler[piece, key, string], desired map[sdk.Name]piece) error {
	t.Helper()
	before := maps.Clone(r.Installed())
	for {
		failed, err := r.Plan().Apply(t.Context())
		if err != nil || len(failed) == 0 {
			return err
		}
		back := make(map[sdk.Name]piece)
		for _, f := range failed {
			if desired[f.Name] == before[f.Name] { // what it had is refused now
				return f.Err
			}
			back[f.Name] = before[f.Name]
		}
		r.SetDesired(back)
		maps.Copy(desired, back)
	}
}

func list(t *testing.T, r *Reconciler[piece, key, string]) {
	t.Helper()
	if _, err := r.List(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// randomChanges returns new pieces of a few Services. Each frontend belongs to one Service at most.
func randomChanges(random *rand.Rand, now map[sdk.Name]piece) map[sdk.Name]piece {
	owner := make(map[byte]string)
	for name, p := range now {
		for _, f := range []byte(p.frontends) {
			owner[f] = name.Service
		}
	}
	touched := make(map[string]bool)
	for range 1 + random.IntN(3) {
		f, to := byte('A'+random.IntN(8)), fmt.Sprint(random.IntN(5))
		touched[to] = true
		if was := owner[f]; was != "" {
			touched[was] = true
		}
		if random.IntN(4) == 0 {
			delete(owner, f)
		} else {
			owner[f] = to
		}
	}
	changes := make(map[sdk.Name]piece)
	for service := range touched {
		var p piece
		for f := byte('A'); f <= 'H'; f++ {
			if owner[f] == service {
				p.frontends += string(f)
			}
		}
		if p.frontends != "" {
			for range random.IntN(5) {
				if e := string("abcdx"[random.IntN(5)]); !strings.Contains(p.endpoints, e) {
					p.endpoints += e
				}
			}
		}
		changes[sdk.Name{Service: service}] = p
	}
	return changes
}

// writesNothing fails if the plan of the next process is not empty, whatever its Parse returns, or if it cannot remove
// all Services.
func writesNothing(t *testing.T, seed uint64, kernel *fakeKernel, desired map[sdk.Name]piece) {
	t.Helper()
	for k := range kernel.entries { // unused containers stay until the next List
		if k.kind == "container" && k.name == 's' && !slices.ContainsFunc(slices.Collect(maps.Keys(kernel.entries)), func(e key) bool { return e.kind == "slot" && e.slot == k.slot }) {
			delete(kernel.entries, k)
		}
	}
	entries := maps.Clone(kernel.entries)
	for _, mode := range []Mode[piece, key, string]{toy{}, forgetful{}, blind{}} {
		kernel.entries = maps.Clone(entries)
		r := New(mode, kernel)
		list(t, r)
		r.SetDesired(desired)
		kernel.applied = 0
		p := r.Plan()
		if _, err := p.Apply(t.Context()); err != nil || kernel.applied != 0 || len(p.Steps()) > 0 {
			t.Fatalf("seed %d: the plan of the next process is %q (%v)", seed, p.Steps(), err)
		}
		has := make(map[key]string)
		r.EachInstalled(func(k key, v string) { has[k] = v })
		if !maps.Equal(has, kernel.entries) {
			t.Fatalf("seed %d: installed\n%v\nthe kernel has\n%v", seed, has, kernel.entries)
		}
		left := maps.Clone(desired)
		for name := range desired { // counted entries go with the last Service that needs them
			delete(left, name)
			r.SetDesired(map[sdk.Name]piece{name: {}})
			if _, err := r.Plan().Apply(t.Context()); err != nil || !maps.Equal(kernel.entries, wanted(left, kernel.entries)) {
				t.Fatalf("seed %d: after %s was removed the kernel has\n%v\nwant\n%v (%v)", seed, name, kernel.entries, wanted(left, kernel.entries), err)
			}
		}
	}
}

// A blind mode cannot parse pieces.
type blind struct{ toy }

func (blind) Parse(map[key]string) (map[sdk.Name]piece, sdk.Role) { return nil, sdk.Active }

// A forgetful mode cannot parse the counted entries of pieces.
type forgetful struct{ toy }

func (f forgetful) Parse(all map[key]string) (map[sdk.Name]piece, sdk.Role) {
	pieces, role := f.toy.Parse(all)
	for name, p := range pieces {
		p.endpoints = ""
		pieces[name] = p
	}
	return pieces, role
}

// TestRefusedPartly: if an entry is refused after a part of the batch was written, the error names the suspects.
func TestRefusedPartly(t *testing.T) {
	kernel := &fakeKernel{T: t, entries: make(map[key]string)}
	kernel.refuse = func(k key, _ string) bool { return k == key{"frontend", 'B', 0} }
	r := New(toy{}, kernel)
	list(t, r)
	a, b := sdk.Name{Service: "a"}, sdk.Name{Service: "b"}
	r.SetDesired(map[sdk.Name]piece{a: {"A", "a"}, b: {"B", "b"}})
	_, err := r.Plan().Apply(t.Context())
	if refused, is := errors.AsType[*frame.Refused](err); !is || !slices.Equal(refused.Suspects, []sdk.Name{b}) {
		t.Errorf("the error is %v, want a Refused with b as the suspect", err)
	}
}

// TestSteps checks the description of a plan.
func TestSteps(t *testing.T) {
	kernel := &fakeKernel{T: t, entries: make(map[key]string)}
	r := New(toy{}, kernel)
	r.Name = "toy"
	list(t, r)
	r.SetDesired(map[sdk.Name]piece{{Service: "a", Namespace: "ns", Port: "http", Protocol: sdk.TCP, Family: sdk.IPv4}: {"A", "ab"}})
	got := strings.Join(r.Plan().Steps(), "\n")
	const want = `toy: add container c
toy: add container f
toy: add container s
toy: ns/a:http/tcp4: add 5 entries`
	if got != want {
		t.Errorf("the steps are\n%s\nwant\n%s", got, want)
	}
}

// TestExchange: a frontend that moves between two Services is one change, in one batch with all changes of both. If one of
// the Services is refused, so is the other.
func TestExchange(t *testing.T) {
	a, b, c := sdk.Name{Service: "a"}, sdk.Name{Service: "b"}, sdk.Name{Service: "c"}
	before := map[sdk.Name]piece{a: {"AF", "ad"}, b: {"B", "bc"}, c: {"C", "ca"}}
	for _, restarted := range []bool{false, true} {
		for _, refused := range []bool{false, true} {
			kernel := &fakeKernel{T: t, entries: make(map[key]string)}
			r := New(toy{}, kernel)
			list(t, r)
			r.SetDesired(before)
			if err := write(t, r, before); err != nil {
				t.Fatal(err)
			}
			if restarted {
				r = New(toy{}, kernel)
				list(t, r)
			}
			r.SetDesired(map[sdk.Name]piece{a: {"A", "ad"}, b: {"BF", "bx"}, c: {"C", "cd"}})
			r.Batch, kernel.applied = 1, 0
			kernel.refuse = func(_ key, v string) bool { return refused && v == "x" }
			failed, err := r.Plan().Apply(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var names []sdk.Name
			for _, f := range failed {
				names = append(names, f.Name)
			}
			slices.SortFunc(names, sdk.Name.Compare)
			want, owner := []sdk.Name(nil), "b"
			if refused {
				want, owner = []sdk.Name{a, b}, "a"
			} else if kernel.applied != 2 {
				t.Errorf("restarted %v: a and b, and then c, took %d batches", restarted, kernel.applied)
			}
			if !slices.Equal(names, want) || kernel.entries[key{"frontend", 'F', 0}] != owner || r.Installed()[c].endpoints != "cd" {
				t.Errorf("restarted %v, refused %v: %v failed, and the kernel has %v", restarted, refused, failed, kernel.entries)
			}
		}
	}
}

// TestPartialKeepsWhatServes: a kernel without transactions refuses an entry of a Service that gives up another frontend in
// the same plan. The Service keeps that frontend all the time, and the next plan removes its new entries.
func TestPartialKeepsWhatServes(t *testing.T) {
	kernel := &fakeKernel{T: t, entries: make(map[key]string), partial: true}
	r := New(toy{}, kernel)
	r.Partial = true
	list(t, r)
	a, b := sdk.Name{Service: "a"}, sdk.Name{Service: "b"}
	r.SetDesired(map[sdk.Name]piece{a: {"A", "ab"}, b: {"B", "c"}})
	if _, err := r.Plan().Apply(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := maps.Clone(kernel.entries)
	kernel.refuse = func(k key, v string) bool { return k.kind == "slot" && v == "x" }
	kernel.keep = before
	delete(before, key{"frontend", 'B', 0}) // b gives up these
	delete(before, key{"slot", 'B', 0})
	delete(before, key{"counted", 'c', 0})
	desired := map[sdk.Name]piece{a: {"C", "xd"}, b: {"D", "a"}}
	r.SetDesired(desired)
	if err := write(t, r, desired); err != nil {
		t.Fatal(err)
	}
	if want := wanted(map[sdk.Name]piece{a: {"A", "ab"}, b: {"D", "a"}}, kernel.entries); !maps.Equal(kernel.entries, want) {
		t.Errorf("the kernel has\n%v\nwant\n%v", kernel.entries, want)
	}
}
