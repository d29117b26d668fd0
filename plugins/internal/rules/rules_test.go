// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/plugins/internal/frame"
	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/rulestest"
	"github.com/pointsman/pointsman/plugins/internal/tree"
	"github.com/pointsman/pointsman/sdk"
)

func nat(chain string) iptables.ID    { return iptables.ID{Table: "nat", Chain: chain} }
func filter(chain string) iptables.ID { return iptables.ID{Table: "filter", Chain: chain} }
func mangle(chain string) iptables.ID { return iptables.ID{Table: "mangle", Chain: chain} }

// Indexes of the trees in testConfig.
const (
	served = iota
	rejected
	ports
)

func testConfig() Config {
	return Config{
		Mangle: true,
		Trees: []Tree{
			served:   {Tree: tree.ByAddress(nat("KUBE-SERVICES"), "KUBE-VIP-", sdk.IPv4, 1)},
			rejected: {Tree: tree.ByAddress(filter("KUBE-SERVICES"), "KUBE-VIP-", sdk.IPv4, 1)},
			ports:    {Tree: tree.ByPort(filter("KUBE-NODEPORTS"), "KUBE-HC-", 1), Shared: true},
		},
		IsOurs: func(id iptables.ID) bool {
			return strings.HasPrefix(id.Chain, "KUBE-") && !rulestest.IsShared(id)
		},
		IsFixed: func(id iptables.ID) bool {
			return slices.Contains([]string{"KUBE-SERVICES", "KUBE-NODEPORTS", "KUBE-FORWARD", "KUBE-MARK"}, id.Chain)
		},
		Role: func(jumps []iptables.Jump) sdk.Role {
			if slices.Contains(jumps, way[2]) {
				return sdk.Active
			}
			return sdk.Standby
		},
		Owner: func(e Entry, _ func(iptables.ID) string) (sdk.Name, bool) {
			return sdk.Name{Service: e.Rule.Comment()}, e.Rule.Comment() != ""
		},
		Rank:       rank,
		Companions: map[iptables.ID]iptables.ID{nat("KUBE-PROXY-CANARY"): {Table: "mangle", Chain: "KUBE-PROXY-CANARY"}},
	}
}

func rank(c iptables.Chain) int {
	switch name := c.ID.Chain; {
	case strings.HasPrefix(name, "KUBE-SEP-"):
		return 1
	case strings.HasPrefix(name, "KUBE-SVC-"), strings.HasPrefix(name, "KUBE-FW-"):
		return 2
	case name == "KUBE-SERVICES", name == "KUBE-NODEPORTS":
		return 4 + tree.Deepest
	case c.Level > 0:
		return 3 + tree.Deepest - c.Level
	}
	return 0
}

// way has jumps that lead packets to the chains of testConfig, and wider has one more.
var (
	way = []iptables.Jump{
		{At: filter("INPUT"), Rule: `-m conntrack --ctstate NEW -m comment --comment "kubernetes service portals" -j KUBE-SERVICES`},
		{At: filter("INPUT"), Rule: `-m comment --comment "kubernetes health check service ports" -j KUBE-NODEPORTS`},
		{At: nat("PREROUTING"), Rule: `-m comment --comment "kubernetes service portals" -j KUBE-SERVICES`},
	}
	wider = append(slices.Clone(way), iptables.Jump{At: nat("OUTPUT"), Rule: `-m comment --comment "kubernetes service portals" -j KUBE-SERVICES`})
)

// nameOf returns the name of the n-th Service.
func nameOf(n int) sdk.Name { return sdk.Name{Service: fmt.Sprint(n)} }

// keyOf returns the frontend of a Service.
func keyOf(service int) tree.Key {
	n := uint32(service*service) / 7
	return tree.Key{Addr: netip.AddrFrom4([4]byte{10, 96, byte(n >> 8), byte(n)}), Protocol: sdk.TCP, Port: uint16(1 + service)}
}

// serve returns the rules of a Service. Packets to a Service without endpoints are rejected. Five Services share a port.
func serve(service, endpoints int) Piece {
	port := Entry{ports, tree.Key{Protocol: sdk.TCP, Port: uint16(1 + service%5)}, "-j ACCEPT"}
	comment := fmt.Sprintf("-m comment --comment %d ", service)
	if endpoints == 0 {
		return NewPiece(nil, []Entry{port, {rejected, keyOf(service), iptables.Rule(comment + "-j REJECT --reject-with icmp-port-unreachable")}})
	}
	own := iptables.Chain{ID: nat(fmt.Sprint("KUBE-SVC-", service))}
	var chains []iptables.Chain
	for i := range endpoints {
		sep := nat(fmt.Sprint("KUBE-SEP-", service, "-", i))
		chains = append(chains, iptables.Chain{ID: sep, Rules: []iptables.Rule{"-p tcp -j DNAT --to-destination 10.0.0.1:80"}})
		own.Rules = append(own.Rules, iptables.Words("-j", sep.Chain))
	}
	chains = append(chains, own)
	entries := []Entry{port, {served, keyOf(service), iptables.Rule(comment + "-j " + own.ID.Chain)}}
	if service%3 == 0 { // it restricts sources
		guard := iptables.Chain{ID: filter(fmt.Sprint("KUBE-FW-", service)), Rules: []iptables.Rule{"-s 10.0.0.0/8 -j RETURN", "-j DROP"}}
		chains = append(chains, guard)
		entries = append(entries, Entry{rejected, keyOf(service), iptables.Rule(comment + "-j " + guard.ID.Chain)})
	}
	return NewPiece(chains, entries)
}

// A stage is Rules with the fake tables to which they are written.
type stage struct {
	*testing.T
	*Rules
	fake  *rulestest.Fake
	moved bool // the rules beside a tree have changed
}

func newStage(t *testing.T) stage {
	s := stage{T: t, fake: rulestest.NewFake()}
	s.restart()
	return s
}

// restart replaces the Rules by those of a new process, which reads the tables.
func (s *stage) restart() sdk.Role {
	s.Helper()
	s.Rules = New(testConfig(), iptables.Tool{Family: sdk.IPv4, Backend: "fake", Kernel: s.fake})
	return s.list()
}

func (s *stage) list() sdk.Role {
	s.Helper()
	role, err := s.List(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	return role
}

// write plans and applies. A plan has steps if and only if something is written, unless the rules beside a tree have
// changed.
func (s *stage) write() *iptables.Script {
	s.Helper()
	s.fake.Last = nil
	p := s.Plan()
	steps := p.Steps()
	if failed, err := p.Apply(s.Context()); err != nil || len(failed) > 0 {
		s.Fatal(failed, err)
	}
	if (len(steps) > 0) != (s.fake.Last != nil) && !s.moved {
		s.Fatalf("steps %q wrote\n%v", steps, s.fake.Last)
	}
	s.moved = false
	return s.fake.Last
}

// catches reports whether packets to a Service reach a rule of that Service in nat or filter.
func (s *stage) catches(service int) bool {
	for _, in := range []int{served, rejected} {
		words := string(s.Trees[in].Words(keyOf(service))) + " "
		if s.finds(s.Trees[in].Root(), words) {
			return true
		}
	}
	return false
}

// finds reports whether packets that are in chain id reach a rule that begins with words.
func (s *stage) finds(id iptables.ID, words string) bool {
	return slices.ContainsFunc(s.fake.Tables[id], func(r iptables.Rule) bool {
		to := iptables.ID{Table: id.Table, Chain: target(string(r))}
		return strings.HasPrefix(string(r), words) || strings.HasPrefix(to.Chain, "KUBE-VIP-") && s.finds(to, words)
	})
}

// TestWalk applies random changes. After each step the tables are what a new process would write. During a step, no rule
// leads to a missing chain, and packets to a Service that exists before and after the step always reach one of its rules,
// however small the runs of the program are.
func TestWalk(t *testing.T) {
	for seed := range uint64(6) {
		random := rand.New(rand.NewPCG(seed, 7))
		s := newStage(t)
		all := make(map[sdk.Name]Piece)
		for step := range 40 {
			before := maps.Clone(all)
			changes := randomChanges(random, step)
			maps.Copy(all, changes)
			maps.DeleteFunc(all, func(_ sdk.Name, p Piece) bool { return p.IsEmpty() })
			jumps := [][]iptables.Jump{way, wider, nil}[random.IntN(3)]
			switch random.IntN(8) {
			case 0: // another program
				damage(s.fake.Tables, random)
				s.list()
				clear(before) // damaged rules may miss packets
			case 1:
				s.restart()
				s.SetDesired(all)
			}
			s.SetDesired(changes)
			s.SetJumps(jumps, wider)
			n := 1 + random.IntN(30)
			s.Tool.Most = iptables.Limit{Chains: n, Lines: 5 * n}
			s.fake.Committed = func() {
				for name := range before {
					var service int
					fmt.Sscan(name.Service, &service)
					if _, still := all[name]; still && !s.catches(service) {
						t.Fatalf("seed %d: packets to %s meet no rule after a block of\n%s", seed, name.Service, s.fake.Last)
					}
				}
			}
			s.write()
			s.isLike(all, jumps)
		}
	}
}

// randomChanges returns new pieces of some Services. The number of Services grows for some steps, and then shrinks.
func randomChanges(random *rand.Rand, step int) map[sdk.Name]Piece {
	changes := make(map[sdk.Name]Piece)
	for range 1 + random.IntN(30) {
		service := random.IntN(200)
		changes[nameOf(service)] = serve(service, max(0, random.IntN(8)-2))
		if random.IntN(5) < 1+2*(step/20%2) {
			changes[nameOf(service)] = Piece{}
		}
	}
	return changes
}

// damage flushes chains, deletes their rules, or adds foreign rules to them, as another program may do.
func damage(tables iptables.Tables, random *rand.Rand) {
	for _, id := range slices.SortedFunc(maps.Keys(tables), iptables.ID.Compare) {
		ours := strings.HasPrefix(id.Chain, "KUBE-")
		switch what := random.IntN(30); {
		case what < 3:
			tables[id] = nil
		case what < 6 && ours:
			tables[id] = []iptables.Rule{"-j RETURN"}
		case what < 9 && ours:
			tables[id] = append(slices.Clone(tables[id]), "-s 192.0.2.1/32 -j DROP")
		case what < 12 && ours && len(tables[id]) > 0:
			tables[id] = slices.Clone(tables[id][1:])
		}
	}
}

// isLike fails if the tables differ from those that a new process would write.
func (s *stage) isLike(all map[sdk.Name]Piece, jumps []iptables.Jump) {
	s.Helper()
	fresh := newStage(s.T)
	fresh.SetDesired(all)
	fresh.SetJumps(jumps, wider)
	fresh.write()
	for id, rules := range s.fake.Tables {
		if !slices.Equal(rules, fresh.fake.Tables[id]) {
			s.Fatalf("chain %s has\n%q, want\n%q", id, rules, fresh.fake.Tables[id])
		}
	}
	for id := range fresh.fake.Tables {
		if _, there := s.fake.Tables[id]; !there {
			s.Fatalf("chain %s is missing", id)
		}
	}
	for _, table := range []string{"nat", "filter"} {
		n := 0
		for id, rules := range s.fake.Tables {
			if s.IsOurs(id) && id.Table == table {
				n += len(rules)
			}
		}
		if s.RuleCount(table) != n {
			s.Fatalf("RuleCount of %s is %d, want %d", table, s.RuleCount(table), n)
		}
	}
	chains := make(map[iptables.ID]string)
	s.EachChain(func(id iptables.ID, text string) { chains[id] = text })
	for id, text := range chains {
		if iptables.Join(s.fake.Tables[id]) != text {
			s.Fatalf("EachChain has chain %s as\n%s, the kernel as\n%s", id, text, s.fake.Tables[id])
		}
	}
	if left := s.write(); left != nil {
		s.Fatalf("a second plan writes\n%s", left)
	}
	next := stage{T: s.T, fake: s.fake}
	next.restart()
	next.SetDesired(all)
	next.SetJumps(jumps, wider)
	if left := next.write(); left != nil {
		s.Fatalf("the next process writes\n%s", left)
	}
}

// The order is: additions to filter, nat, removals from filter. So a rejection ends only when nat serves the packets, and
// nat stops serving only when filter rejects them.
func TestAddsBeforeItRemoves(t *testing.T) {
	s := newStage(t)
	s.SetJumps(way, wider)
	s.SetDesired(map[sdk.Name]Piece{nameOf(1): serve(1, 0), nameOf(2): serve(2, 1)})
	s.write()
	s.SetDesired(map[sdk.Name]Piece{nameOf(1): serve(1, 1), nameOf(2): serve(2, 0)})
	s.SetJumps(way[1:], wider)
	const want = `*filter
:KUBE-SERVICES - [0:0]
-A KUBE-SERVICES -d 10.96.0.0/32 -p tcp -m tcp --dport 2 -m comment --comment 1 -j REJECT --reject-with icmp-port-unreachable
-A KUBE-SERVICES -d 10.96.0.0/32 -p tcp -m tcp --dport 3 -m comment --comment 2 -j REJECT --reject-with icmp-port-unreachable
COMMIT
*nat
:KUBE-SEP-1-0 - [0:0]
:KUBE-SERVICES - [0:0]
:KUBE-SVC-1 - [0:0]
:KUBE-SEP-2-0 - [0:0]
:KUBE-SVC-2 - [0:0]
-A KUBE-SEP-1-0 -p tcp -j DNAT --to-destination 10.0.0.1:80
-A KUBE-SERVICES -d 10.96.0.0/32 -p tcp -m tcp --dport 2 -m comment --comment 1 -j KUBE-SVC-1
-A KUBE-SVC-1 -j KUBE-SEP-1-0
-X KUBE-SVC-2
-X KUBE-SEP-2-0
COMMIT
*filter
:KUBE-SERVICES - [0:0]
-A KUBE-SERVICES -d 10.96.0.0/32 -p tcp -m tcp --dport 3 -m comment --comment 2 -j REJECT --reject-with icmp-port-unreachable
-D INPUT -m conntrack --ctstate NEW -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
COMMIT
`
	if got := s.write().String(); got != want {
		t.Errorf("wrote\n%s\nwant\n%s", got, want)
	}
}

// A chain to which a foreign rule leads is emptied and not removed. After that the plan is empty, also in the next
// process.
func TestForeignRulesHoldAChain(t *testing.T) {
	s := newStage(t)
	foreign := iptables.Rule("-s 192.0.2.1/32 -j KUBE-SVC-1")
	s.fake.Tables[nat("KUBE-SVC-1")], s.fake.Tables[nat("KUBE-SVC-2")] = []iptables.Rule{"-j RETURN"}, []iptables.Rule{"-j RETURN"}
	s.fake.Tables[nat("KUBE-VIP-X")] = []iptables.Rule{"-j RETURN"}
	s.fake.Tables[nat("PREROUTING")] = []iptables.Rule{foreign, "-p udp -j KUBE-VIP-X"}
	before := slices.Clone(s.fake.Tables[nat("PREROUTING")])
	s.list()
	s.write()
	kept, there := s.fake.Tables[nat("KUBE-SVC-1")]
	branch, hangs := s.fake.Tables[nat("KUBE-VIP-X")]
	_, stays := s.fake.Tables[nat("KUBE-SVC-2")]
	if len(kept) > 0 || !there || len(branch) > 0 || !hangs || stays || !slices.Equal(s.fake.Tables[nat("PREROUTING")], before) {
		t.Errorf("the tables have %q", s.fake.Tables)
	}
	if s.restart(); s.write() != nil {
		t.Errorf("the next process writes\n%s", s.fake.Last)
	}
	s.SetFixed([]iptables.Chain{{ID: nat("KUBE-SVC-1")}})
	s.list()
	if s.write() != nil {
		t.Errorf("an empty fixed chain that exists is written:\n%s", s.fake.Last)
	}
	s.SetFixed(nil)
	s.list()
	s.SetDesired(map[sdk.Name]Piece{nameOf(1): serve(1, 1)})
	s.write()
	if len(s.fake.Tables[nat("KUBE-SVC-1")]) != 1 {
		t.Errorf("a held chain that is needed again has %q", s.fake.Tables[nat("KUBE-SVC-1")])
	}
	s.SetDesired(map[sdk.Name]Piece{nameOf(1): {}})
	s.write()
	if rules, there := s.fake.Tables[nat("KUBE-SVC-1")]; len(rules) > 0 || !there {
		t.Errorf("a held chain that is no longer needed has %q", rules)
	}
}

// Jumps of kube-proxy are deleted before the chains to which they lead change. The mode's own jumps in filter are deleted
// last. A missing jump is added above the existing ones, which keep their order. A duplicate is deleted.
func TestJumps(t *testing.T) {
	proxys := iptables.Jump{At: filter("FORWARD"), Rule: `-m conntrack --ctstate NEW -m comment --comment "kubernetes service portals" -j KUBE-SERVICES`}
	a, b := way[0].Rule, way[1].Rule
	const foreign iptables.Rule = "-p 99 -j DROP"
	s := newStage(t)
	in := filter("INPUT")
	for _, c := range []struct {
		have, want []iptables.Rule
		jumps      []iptables.Jump
	}{
		{nil, []iptables.Rule{b, a}, way},
		{[]iptables.Rule{foreign, a}, []iptables.Rule{b, foreign, a}, way},
		{[]iptables.Rule{b, foreign}, []iptables.Rule{b, a, foreign}, way},
		{[]iptables.Rule{a, foreign, b}, []iptables.Rule{b, a, foreign}, way},
		{[]iptables.Rule{b, a, foreign}, []iptables.Rule{b, foreign}, way[1:]},
		{[]iptables.Rule{b, a, b}, []iptables.Rule{b, a}, way},
		{[]iptables.Rule{a, foreign, a, b}, []iptables.Rule{foreign}, way[2:]},
	} {
		s.fake.Tables[filter("KUBE-SERVICES")] = nil // the table is read only if it has a chain of ours
		s.fake.Tables[in] = c.have
		s.fake.Tables[proxys.At] = []iptables.Rule{proxys.Rule}
		s.restart()
		s.SetJumps(c.jumps, wider)
		first := true
		s.fake.Committed = func() {
			if first && len(s.fake.Tables[proxys.At]) > 0 {
				t.Error("the jump of kube-proxy is not deleted first")
			}
			first = false
		}
		s.write()
		if s.fake.Committed = nil; !slices.Equal(s.fake.Tables[in], c.want) {
			t.Errorf("%q became %q, want %q", c.have, s.fake.Tables[in], c.want)
		}
		if s.restart(); len(c.jumps) > 0 {
			s.SetJumps(c.jumps, wider)
			if left := s.write(); left != nil {
				t.Errorf("%q: the next process writes\n%s", c.have, left)
			}
		}
	}
}

// kube-proxy has a canary in each table. The one in mangle, which may never be read, is removed with the one in nat.
func TestCompanions(t *testing.T) {
	s := newStage(t)
	s.fake.Tables[nat("KUBE-PROXY-CANARY")], s.fake.Tables[mangle("KUBE-PROXY-CANARY")] = nil, nil
	s.Config.Mangle = false
	s.list()
	s.write()
	if _, there := s.fake.Tables[mangle("KUBE-PROXY-CANARY")]; there {
		t.Errorf("the canary in mangle stays:\n%s", s.fake.Last)
	}
}

// An update of k Services writes O(k) lines.
func TestCostFollowsTheChange(t *testing.T) {
	for _, n := range []int{100, 10_000} {
		s := newStage(t)
		all := make(map[sdk.Name]Piece)
		for service := range n {
			all[nameOf(service)] = serve(service, 1)
		}
		s.SetDesired(all)
		s.write()
		changes := make(map[sdk.Name]Piece)
		for service := range 10 {
			changes[nameOf(service*n/10)] = serve(service*n/10, 2)
		}
		s.SetDesired(changes)
		if lines := strings.Count(s.write().String(), "\n"); lines > 250 {
			t.Errorf("a change of 10 of %d Services writes %d lines", n, lines)
		}
	}
}

// The next process parses the piece of each Service, without the entries that Services share.
func TestParse(t *testing.T) {
	s := newStage(t)
	s.SetJumps(way, wider)
	all := map[sdk.Name]Piece{nameOf(1): serve(1, 3), nameOf(2): serve(2, 0), nameOf(3): serve(3, 1)}
	s.SetDesired(all)
	s.SetFixed([]iptables.Chain{{ID: filter("KUBE-FORWARD")}})
	s.write()
	if role := s.restart(); role != sdk.Active {
		t.Errorf("the role is %s", role)
	}
	for name, p := range all {
		p.Entries = slices.DeleteFunc(slices.Clone(p.Entries), func(e Entry) bool { return e.In == ports })
		if !s.Installed()[name].Equal(p) {
			t.Errorf("piece of %s:\n%+v, want\n%+v", name.Service, s.Installed()[name], p)
		}
	}
}

// A refused line is attributed to a Service by its chain or its entry. The other Services can be written without it.
func TestRefused(t *testing.T) {
	for what, refuse := range map[string]func(iptables.ID, iptables.Rule) bool{
		"a rule of its chain": func(id iptables.ID, _ iptables.Rule) bool { return id.Chain == "KUBE-SVC-1" },
		"its entry":           func(_ iptables.ID, r iptables.Rule) bool { return r.Comment() == "1" },
	} {
		s := newStage(t)
		s.SetDesired(map[sdk.Name]Piece{nameOf(1): serve(1, 1), nameOf(2): serve(2, 0), nameOf(4): serve(4, 1)})
		s.fake.Refuse = refuse
		_, err := s.Plan().Apply(t.Context())
		refused, is := errors.AsType[*frame.Refused](err)
		if !is || !slices.Equal(refused.Suspects, []sdk.Name{nameOf(1)}) || s.IsCurrent() || s.Stats.Failures != 1 {
			t.Errorf("%s: %v, %+v", what, err, s.Stats)
		}
		s.list()
		s.SetDesired(map[sdk.Name]Piece{nameOf(1): {}})
		s.write()
		s.isLike(map[sdk.Name]Piece{nameOf(2): serve(2, 0), nameOf(4): serve(4, 1)}, nil)
	}
}

// Fixed chains, and the rules beside a tree in its root, are replaced like others.
func TestFixed(t *testing.T) {
	s := newStage(t)
	s.SetFixed([]iptables.Chain{{ID: filter("KUBE-FORWARD"), Rules: []iptables.Rule{"-j ACCEPT"}}, {ID: nat("KUBE-MARK")}})
	s.SetRoot(rejected, []iptables.Rule{"-m conntrack --ctstate DNAT -j RETURN"}, []iptables.Rule{"-d 192.0.2.1/32 -j KUBE-FORWARD"})
	s.SetDesired(map[sdk.Name]Piece{nameOf(2): serve(2, 0)})
	s.write()
	root := s.fake.Tables[filter("KUBE-SERVICES")]
	if len(root) != 3 || root[0] != "-m conntrack --ctstate DNAT -j RETURN" || root[2] != "-d 192.0.2.1/32 -j KUBE-FORWARD" {
		t.Errorf("the root is %q", root)
	}
	ends := s.ends
	s.restart()
	if text, found := s.Found(filter("KUBE-FORWARD")); !found || text != "-j ACCEPT\n" {
		t.Errorf("Found returned %q", text)
	}
	s.SetFixed([]iptables.Chain{{ID: filter("KUBE-FORWARD"), Rules: []iptables.Rule{"-j ACCEPT"}}, {ID: nat("KUBE-MARK")}})
	s.SetRoot(rejected, ends[rejected].head, ends[rejected].tail)
	s.SetDesired(map[sdk.Name]Piece{nameOf(2): serve(2, 0)})
	if left := s.write(); left != nil {
		t.Errorf("the next process writes\n%s", left)
	}
	s.SetFixed(nil)
	s.SetRoot(rejected, nil, nil)
	s.moved = true
	s.write()
	s.isLike(map[sdk.Name]Piece{nameOf(2): serve(2, 0)}, nil)
}
