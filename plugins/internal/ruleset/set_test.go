// SPDX-License-Identifier: Apache-2.0

package ruleset

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/sdk"
)

// Jumps by which the tests' set catches packets, and the same with one more.
var (
	way = []iptables.Jump{
		{At: filter("INPUT"), Rule: `-m conntrack --ctstate NEW -m comment --comment "kubernetes service portals" -j KUBE-SERVICES`},
		{At: filter("INPUT"), Rule: `-m comment --comment "kubernetes health check service ports" -j KUBE-NODEPORTS`},
		{At: nat("PREROUTING"), Rule: `-m comment --comment "kubernetes service portals" -j KUBE-SERVICES`},
	}
	wider = append(slices.Clone(way), iptables.Jump{At: nat("OUTPUT"), Rule: `-m comment --comment "kubernetes service portals" -j KUBE-SERVICES`})
)

// A walk goes from any desired state to any other. After each step the kernel has what a
// fresh set would write, and on the way there no rule leads nowhere, and packets to an owner
// that is there before and after meet a rule of its at every moment, however small the
// pieces are.
func TestWalk(t *testing.T) {
	for seed := range uint64(4) {
		random := rand.New(rand.NewPCG(seed, 7))
		s, k := newSet(), newKernel(t)
		all := make(map[int]Desired)
		for step := range 40 {
			before := maps.Clone(all)
			for owner, d := range change(random, step) {
				s.Put(owner, d)
				if all[owner] = d; d.Empty() {
					delete(all, owner)
				}
			}
			jumps := [][]iptables.Jump{way, wider, nil}[random.IntN(3)]
			s.SetJumps(jumps, wider)
			if random.IntN(10) == 0 {
				k.damage(random)
				s.Adopt(k.Tables)
				clear(before) // what was damaged may miss packets
			}
			k.follow(s, size(random), before, all)
			k.like(s, all, jumps)
		}
	}
}

// change is what some owners want next. Their number grows for a while, and shrinks.
func change(random *rand.Rand, step int) map[int]Desired {
	changes := make(map[int]Desired)
	for range 1 + random.IntN(30) {
		owner := random.IntN(200)
		changes[owner] = serve(owner, max(0, random.IntN(8)-2))
		if random.IntN(5) < 1+2*(step/20%2) {
			changes[owner] = Desired{}
		}
	}
	return changes
}

func size(random *rand.Rand) iptables.Limit {
	n := 1 + random.IntN(30)
	return iptables.Limit{Chains: n, Lines: 5 * n}
}

// damage is what another process may do: flush a chain, or put strange rules in one.
func (k kernel) damage(random *rand.Rand) {
	for _, id := range slices.SortedFunc(maps.Keys(k.Tables), iptables.ID.Compare) {
		if random.IntN(10) == 0 {
			k.Tables[id] = nil
		} else if random.IntN(10) == 0 && id.Chain[:2] == "KU" {
			k.Tables[id] = []iptables.Rule{"-j RETURN"}
		}
	}
}

// follow carries out the plan of s.
func (k kernel) follow(s *Set[int], size iptables.Limit, before, after map[int]Desired) {
	k.Helper()
	p := s.Plan()
	for _, part := range p.Cut(size, rank) {
		for _, block := range part {
			k.do(block)
			for owner := range before {
				if _, still := after[owner]; still && !k.catches(s, owner) {
					k.Fatalf("packets to %d meet no rule after\n%s", owner, Plan{block})
				}
			}
		}
	}
	s.Done(p)
	s.Settled()
}

// like fails where the kernel has anything else than a fresh set would write.
func (k kernel) like(s *Set[int], all map[int]Desired, jumps []iptables.Jump) {
	k.Helper()
	fresh := newSet()
	fresh.PutAll(all)
	should := fresh.Tables()
	for _, j := range jumps {
		should[j.At] = slices.Insert(should[j.At], 0, j.Rule)
	}
	for id, rules := range k.Tables {
		if !slices.Equal(rules, should[id]) {
			k.Fatalf("%s is\n%q, and should be\n%q", id, rules, should[id])
		}
	}
	for id := range should {
		if _, there := k.Tables[id]; !there {
			k.Fatalf("%s is not there", id)
		}
	}
	for _, table := range []string{"nat", "filter"} {
		n := 0
		for id, rules := range k.Tables {
			if s.config.Ours(id) && id.Table == table {
				n += len(rules)
			}
		}
		if s.RuleCount(table) != n {
			k.Fatalf("%d rules are counted in %s, where %d are", s.RuleCount(table), table, n)
		}
	}
	if p := s.Plan(); len(p) > 0 {
		k.Fatalf("and yet the plan is\n%s", p)
	}
}

// A plan reads: filter additions, nat, filter removals. What filter rejected goes only when
// nat serves it, and what nat served goes only when filter rejects it.
func TestPlanAddsBeforeItRemoves(t *testing.T) {
	s := newSet()
	s.SetJumps(way, wider)
	s.Put(1, serve(1, 0))
	s.Put(2, serve(2, 1))
	s.Done(s.Plan())
	s.Settled()
	s.Put(1, serve(1, 1))
	s.Put(2, serve(2, 0))
	s.SetJumps(way[1:], wider)
	want := `write filter KUBE-SERVICES (2 rules)
write nat KUBE-SEP-1-0 (1 rules)
write nat KUBE-SERVICES (1 rules)
write nat KUBE-SVC-1 (1 rules)
remove nat KUBE-SEP-2-0
remove nat KUBE-SVC-2
write filter KUBE-SERVICES (1 rules)
delete from filter INPUT: -m conntrack --ctstate NEW -m comment --comment "kubernetes service portals" -j KUBE-SERVICES`
	if got := s.Plan().String(); got != want {
		t.Errorf("the plan is\n%s\nand should be\n%s", got, want)
	}
}

// A chain to which a foreign rule leads is emptied, and not removed; and then there is
// nothing left to do.
func TestForeignRulesHoldAChain(t *testing.T) {
	s := newSet()
	foreign := iptables.Rule("-s 192.0.2.1/32 -j KUBE-SVC-1")
	s.Adopt(iptables.Tables{nat("KUBE-SVC-1"): {"-j RETURN"}, nat("KUBE-SVC-2"): {"-j RETURN"}, nat("PREROUTING"): {foreign}})
	p := s.Plan()
	if steps := p.Steps(); !slices.Contains(steps, "write nat KUBE-SVC-1 (0 rules)") || !slices.Contains(steps, "remove nat KUBE-SVC-2") || slices.Contains(steps, "remove nat KUBE-SVC-1") {
		t.Errorf("the plan is\n%s", p)
	}
	s.Done(p)
	s.Settled()
	if p := s.Plan(); len(p) > 0 {
		t.Errorf("there is still something to do:\n%s", p)
	}
}

// Jumps of kube-proxy that this dataplane does not make go before the chains that they lead
// to change; its own of filter go last. One that is missing is added above those that stand.
func TestJumpsOfOthers(t *testing.T) {
	s := newSet()
	proxys := iptables.Jump{At: filter("FORWARD"), Rule: `-m conntrack --ctstate NEW -m comment --comment "kubernetes service portals" -j KUBE-SERVICES`}
	s.Adopt(iptables.Tables{proxys.At: {proxys.Rule}, filter("INPUT"): {way[0].Rule}, nat("KUBE-PROXY-CANARY"): {}})
	s.SetJumps(way[:2], wider)
	p := s.Plan()
	first, last := p[0], p[len(p)-1]
	if !slices.Equal(first.Delete, []iptables.Jump{proxys}) || !slices.Equal(first.Insert, way[1:2]) {
		t.Errorf("at first\n%s", Plan{first})
	}
	if last.Table != "mangle" || len(last.Remove) != 1 {
		t.Errorf("the canary's companion stays:\n%s", p)
	}
	s.Done(p)
	s.SetJumps([]iptables.Jump{way[1], way[0]}, wider)
	delete(s.standing, way[1])
	if p := s.Plan(); len(p[0].Insert) != 2 || !slices.Equal(p[0].Delete, way[:1]) {
		t.Errorf("the order of jumps is kept by\n%s", p)
	}
}

// Whatever there is, an update of k owners looks at, and writes, what they need.
func TestCostFollowsTheChange(t *testing.T) {
	for _, n := range []int{100, 10_000} {
		s := New(testConfig())
		for owner := range n {
			s.Put(owner, serve(owner, 1))
		}
		s.Done(s.Plan())
		s.Settled()
		for owner := range 10 {
			s.Put(owner*n/10, serve(owner*n/10, 2))
		}
		p := s.Plan()
		written := 0
		for _, b := range p {
			written += len(b.Whole)
		}
		if touched := len(s.touched); touched > 80 || written > 80 {
			t.Errorf("of %d owners 10 change: %d chains are touched, and %d written", n, touched, written)
		}
	}
}

// What an owner is served by is found behind its entry.
func TestBehind(t *testing.T) {
	s, k := newSet(), newKernel(t)
	s.Put(1, serve(1, 3))
	s.Put(2, serve(2, 3))
	k.follow(s, iptables.Limit{Chains: 100, Lines: 100}, nil, nil)
	next := newSet()
	next.Adopt(k.Tables)
	fixed := func(id iptables.ID) bool { return id == nat("KUBE-SEP-1-2") }
	var names []string
	for _, c := range next.Behind(nil, nat("KUBE-SVC-1"), fixed) {
		names = append(names, c.ID.Chain)
	}
	if want := []string{"KUBE-SVC-1", "KUBE-SEP-1-0", "KUBE-SEP-1-1"}; !slices.Equal(names, want) {
		t.Errorf("behind the entry are %v, not %v", names, want)
	}
}

// The owner of a refused line is known by its chain, or by its entry.
func TestConcerns(t *testing.T) {
	s := newSet()
	s.Put(1, serve(1, 1))
	s.Put(2, serve(2, 0))
	s.Plan()
	entry := "-A KUBE-SERVICES " + string(s.Tree(rejected).Line(serve(2, 0).Entries[1].Entry))
	for _, c := range []struct {
		line iptables.LineError
		want []bool
	}{
		{iptables.LineError{Chain: nat("KUBE-SVC-1"), Line: "-A KUBE-SVC-1 -j KUBE-SEP-1-0"}, []bool{true, false}},
		{iptables.LineError{Chain: filter("KUBE-SERVICES"), Line: entry}, []bool{false, true}},
		{iptables.LineError{Chain: nat("KUBE-SERVICES"), Line: entry}, []bool{false, false}},
	} {
		got := []bool{s.Concerns(1, &c.line), s.Concerns(2, &c.line)}
		if !slices.Equal(got, c.want) {
			t.Errorf("%q concerns %v, not %v", c.line.Line, got, c.want)
		}
	}
}

// What serves all owners, and what stands beside a tree in its root, is replaced like the
// rest.
func TestFixed(t *testing.T) {
	s, k := newSet(), newKernel(t)
	s.SetFixed(Desired{Chains: []iptables.Chain{{ID: filter("KUBE-FORWARD"), Rules: []iptables.Rule{"-j ACCEPT"}}, {ID: nat("KUBE-MARK")}}})
	s.SetRoot(rejected, []iptables.Rule{"-m conntrack --ctstate DNAT -j RETURN"}, []iptables.Rule{"-j KUBE-FORWARD"})
	s.Put(2, serve(2, 0))
	k.follow(s, iptables.Limit{Chains: 100, Lines: 100}, nil, nil)
	root := k.Tables[filter("KUBE-SERVICES")]
	if len(root) != 3 || root[0] != "-m conntrack --ctstate DNAT -j RETURN" || root[2] != "-j KUBE-FORWARD" {
		t.Errorf("the root is %q", root)
	}
	s.SetFixed(Desired{})
	s.SetRoot(rejected, nil, nil)
	k.follow(s, iptables.Limit{Chains: 100, Lines: 100}, nil, nil)
	k.like(s, map[int]Desired{2: serve(2, 0)}, nil)
}

// A set says of which family it is, and has no owner at first.
func TestNew(t *testing.T) {
	s := newSet()
	if s.Family() != sdk.IPv4 || len(s.Owners()) != 0 {
		t.Error(fmt.Sprint(s.Family(), s.Owners()))
	}
}
