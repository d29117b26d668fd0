// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/rulestest"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/conntrack"
)

// A fake is a kernel in memory. It executes requests, and records each one that changes something. It stores set
// entries as the text that ipset prints.
type fake struct {
	folder string // holds the kernel parameters as files

	mu       sync.Mutex // guards the fields below
	services map[serviceKey]*fakeService
	sets     map[string]*fakeSet
	device   bool
	ours     map[netip.Addr]bool
	others   map[netip.Addr]bool
	tables   map[sdk.Family]iptables.Tables
	stale    map[sdk.Family]conntrack.Served
	changes  addrChanges
	requests []string
	reads    int
	refuse   func(request string) error // called before each request; an error refuses it
}

type fakeService struct {
	scheduling
	flags uint32
	dests map[netip.AddrPort]int // weight by destination
	next  int
	stuck map[netip.Addr]netip.AddrPort
	conns map[netip.AddrPort]int // number of open connections by destination
}

type fakeSet struct {
	create  string // the line that created the set, from the set's type on
	entries map[string]string
}

func newFake(t *testing.T) *fake {
	f := &fake{
		folder: t.TempDir() + "/",
		ours:   make(map[netip.Addr]bool), others: make(map[netip.Addr]bool),
		services: make(map[serviceKey]*fakeService), sets: make(map[string]*fakeSet),
		tables: make(map[sdk.Family]iptables.Tables), stale: make(map[sdk.Family]conntrack.Served),
	}
	for _, of := range families {
		f.tables[of] = rulestest.NewFake().Tables
	}
	old := machine{parameters: f.folder, release: func() string { return "5.4" }}
	for _, s := range old.settings(sdk.Node{}, options{StrictARP: true}) {
		if err := os.MkdirAll(filepath.Dir(s.Path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(s.Path, []byte("0\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(f.folder+"connections", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	return f
}

// edges returns a machine whose interfaces are all implemented by the fake.
func (f *fake) edges() machine {
	k := kernel{f, f, fakeLinks{f}}
	return machine{
		probe:   func(context.Context, options) error { return nil },
		release: func() string { return "6.1" },
		open:    func(bool) (kernel, error) { return k, nil },
		rules: func(context.Context, string, func(string)) ([]iptables.Tool, error) {
			return []iptables.Tool{f.tool(sdk.IPv4), f.tool(sdk.IPv6)}, nil
		},
		toolsInUse:  func(_ context.Context, of sdk.Family) []iptables.Tool { return []iptables.Tool{f.tool(of)} },
		forget:      f.forget,
		forgetEarly: func(sdk.Family, []sdk.Service, func(netip.Addr) bool, func()) (int, error) { return 0, nil },
		parameters:  f.folder,
		connections: f.folder + "connections",
	}
}

// request records a request, unless refuse rejects it.
func (f *fake) request(format string, args ...any) error {
	text := fmt.Sprintf(format, args...)
	if f.refuse != nil {
		if err := f.refuse(text); err != nil {
			return err
		}
	}
	f.requests = append(f.requests, text)
	return nil
}

// counted returns the requests since the last call, and forgets them.
func (f *fake) counted() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := f.requests
	f.requests = nil
	return all
}

// asked returns the number of reads.
func (f *fake) asked() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.reads
}

func (f *fake) Close() error { return nil }

// serving returns the destinations that receive new connections, sorted.
func (s *fakeService) serving() (all []netip.AddrPort) {
	for _, dest := range slices.SortedFunc(maps.Keys(s.dests), netip.AddrPort.Compare) {
		if s.dests[dest] > 0 {
			all = append(all, dest)
		}
	}
	return all
}

func (f *fake) Services() (map[serviceKey]state, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reads++
	all := make(map[serviceKey]state)
	for at, s := range f.services {
		all[at] = newState(s.scheduling, s.flags, s.loads())
	}
	return all, nil
}

func (s *fakeService) loads() map[netip.AddrPort]load {
	loads := make(map[netip.AddrPort]load)
	for dest, weight := range s.dests {
		loads[dest] = load{Weight: weight, Active: s.conns[dest]}
	}
	return loads
}

// Send executes the steps one after another, as the kernel does.
func (f *fake) Send(steps []step) ([]error, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	answers := make([]error, len(steps))
	for i, s := range steps {
		answers[i] = f.step(s)
	}
	return answers, nil
}

func (f *fake) step(s step) error {
	v := f.services[s.service]
	_, dest := v.weight(s.dest)
	switch {
	case s.verb == addService && v != nil, s.verb == addDest && dest:
		return syscall.EEXIST
	case s.verb != addService && v == nil:
		return syscall.ESRCH
	case s.verb == weighDest && !dest, s.verb == removeDest && !dest:
		return syscall.ENOENT
	}
	text := map[verb]string{removeService: "remove server " + s.service.String(), removeDest: fmt.Sprintf("remove real %s of %s", s.dest, s.service)}[s.verb]
	switch {
	case text != "":
	case s.dest.IsValid():
		text = fmt.Sprintf("real %s of %s: %d", s.dest, s.service, s.weight)
	default:
		text = fmt.Sprintf("server %s %s", s.service, s.scheduling)
	}
	if err := f.request("%s", text); err != nil {
		return err
	}
	switch s.verb {
	case addService:
		v = &fakeService{stuck: make(map[netip.Addr]netip.AddrPort), conns: make(map[netip.AddrPort]int), dests: make(map[netip.AddrPort]int)}
		f.services[s.service] = v
		fallthrough
	case setService:
		v.scheduling, v.flags = s.scheduling, s.flags()
	case removeService:
		delete(f.services, s.service)
	case removeDest:
		delete(v.dests, s.dest)
		delete(v.conns, s.dest)
	default:
		v.dests[s.dest] = s.weight
	}
	return nil
}

// weight returns the weight of a destination, and whether it exists.
func (s *fakeService) weight(dest netip.AddrPort) (weight int, there bool) {
	if s != nil {
		weight, there = s.dests[dest]
	}
	return weight, there
}

func (f *fake) Exists(at serviceKey) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reads++
	return f.services[at] != nil, nil
}

// Table returns the loads of all virtual servers, except those of marks without destinations: the real kernel leaves
// these out, too.
func (f *fake) Table() (table, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reads++
	all := make(table)
	for at, s := range f.services {
		if at.mark == 0 || len(s.dests) > 0 {
			all[at] = s.loads()
		}
	}
	return all, nil
}

func (f *fake) SetTimeouts(t timeouts) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.request("timeouts %v", t)
}

func (f *fake) Hold(*os.File) {}

func (f *fake) Sets(context.Context) (map[sdk.Family]setsOf, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reads++
	var b strings.Builder
	for name, s := range f.sets {
		fmt.Fprintf(&b, "create %s %s\n", name, s.create)
		for e, rest := range s.entries {
			fmt.Fprintf(&b, "add %s %s%s\n", name, e, rest)
		}
	}
	return readSets([]byte(b.String()))
}

func (f *fake) Add(e entry, n note) error { return f.restore(e.command(n)) }

func (f *fake) Remove(e entry) error {
	return f.restore(fmt.Sprintf("del -exist %s %s", e.set.name(e.family), e))
}

func (f *fake) Count(s set, of sdk.Family) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reads++
	if have := f.sets[s.name(of)]; have != nil {
		return len(have.entries), nil
	}
	return 0, syscall.ENOENT
}

func (f *fake) Restore(ctx context.Context, lines string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return f.restore(strings.Split(strings.TrimSpace(lines), "\n")...)
}

func (f *fake) restore(lines ...string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.request("sets: %s", strings.Join(lines, "; ")); err != nil {
		return err
	}
	for _, line := range lines {
		if err := f.line(strings.Fields(strings.Replace(line, " -exist", "", 1)), line); err != nil {
			return fmt.Errorf("ipset: %q: %w", line, err)
		}
	}
	return nil
}

// line executes one line of the input of ipset restore.
func (f *fake) line(words []string, line string) error {
	name := words[1]
	s := f.sets[name]
	if words[0] == "create" {
		if s == nil {
			f.sets[name] = &fakeSet{create: strings.Join(words[2:], " "), entries: make(map[string]string)}
		}
		return nil
	}
	if s == nil {
		return syscall.ENOENT
	}
	switch words[0] {
	case "add":
		_, rest, _ := strings.Cut(line, words[2])
		s.entries[words[2]] = rest
	case "del":
		delete(s.entries, words[2])
	case "destroy":
		if f.isReferenced(name) {
			return syscall.EBUSY
		}
		delete(f.sets, name)
	}
	return nil
}

// isReferenced reports whether a rule refers to a set.
func (f *fake) isReferenced(name string) bool {
	for _, tables := range f.tables {
		for _, rules := range tables {
			if slices.ContainsFunc(rules, func(r iptables.Rule) bool { return strings.Contains(string(r), " "+name+" ") }) {
				return true
			}
		}
	}
	return false
}
