// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A witness has a function for Whole that records its arguments. It fails Services named bad, and
// everything while broken.
type witness struct {
	calls  []string
	broken bool
}

var errBroken = errors.New("the kernel is busy")

func (w *witness) serve(_ context.Context, s State) error {
	var words []string
	var failed Failures
	for _, name := range slices.SortedFunc(maps.Keys(s.Services), Name.Compare) {
		words = append(words, fmt.Sprintf("%s=%d", name.Service, s.Services[name].HealthPort))
		if name.Service == "bad" {
			failed = append(failed, Failure{name, errors.New("it is bad")})
		}
	}
	for _, name := range slices.SortedFunc(maps.Keys(s.Kept), Name.Compare) {
		words = append(words, "keep "+name.Service)
	}
	w.calls = append(w.calls, s.Node.Name+"["+strings.Join(words, " ")+"]")
	switch {
	case w.broken:
		return errBroken
	case failed != nil:
		return fmt.Errorf("serve: %w", failed)
	}
	return nil
}

func svc(service string, version uint16) Service {
	return Service{Name: Name{Namespace: "ns1", Service: service, Protocol: TCP, Family: IPv4}, HealthPort: version}
}

// do runs a step of a script, and returns the calls of the function, the names of failed Services
// or removed things, and the error. Steps are "configure OPTIONS", "role ROLE", "cleanup", "dry"
// (run), "break", "mend", and updates: "full TO" or "FROM>TO", followed by changes: "a=1" (a
// Service), "-a", "n1" (a Node).
func (w *witness) do(t *testing.T, dp Dataplane, step string) string {
	t.Helper()
	words := strings.Fields(step)
	var err error
	var names []string
	switch words[0] {
	case "configure":
		_, err = dp.Configure(t.Context(), Setup{Options: []byte(strings.Join(words[1:], " "))})
	case "role":
		err = dp.SetRole(t.Context(), Role(max(0, slices.Index(roles, words[1]))))
	case "cleanup", "dry":
		names, err = dp.Cleanup(t.Context(), Leftovers{DryRun: words[0] == "dry"})
	case "break", "mend":
		w.broken = words[0] == "break"
	default:
		var r Result
		r, err = dp.Sync(t.Context(), update(words))
		for _, f := range r.Failed {
			names = append(names, "failed "+f.Name.Service)
		}
	}
	out := append(w.calls, names...)
	w.calls = nil
	if err != nil {
		var refused *Refusal
		switch {
		case errors.As(err, new(*Busy)):
			out = append(out, "Busy")
		case errors.As(err, &refused):
			out = append(out, "refuses "+refused.Field)
		case errors.Is(err, ErrResync):
			out = append(out, "ErrResync")
		case errors.Is(err, errBroken):
			out = append(out, "broken")
		default:
			out = append(out, err.Error())
		}
	}
	return strings.Join(out, " ")
}

// update returns the update of a step.
func update(words []string) (u Update) {
	changes := words[1:]
	if from, to, delta := strings.Cut(words[0], ">"); delta {
		u.From, u.To = uint64(atoi(from)), uint64(atoi(to))
	} else {
		u.Full, u.To, changes = true, uint64(atoi(words[1])), words[2:]
	}
	for _, word := range changes {
		name, version, set := strings.Cut(word, "=")
		switch {
		case set:
			u.Set = append(u.Set, svc(name, uint16(atoi(version))))
		case name[0] == '-':
			u.Delete = append(u.Delete, svc(name[1:], 0).Name)
		default:
			u.Node = &Node{Name: name}
		}
	}
	return u
}

func atoi(s string) int {
	n, _ := strconv.Atoi(s)
	return n
}

// TestWhole runs scripts: each line is a step and what came of it.
func TestWhole(t *testing.T) {
	const everything = "everything that test serves"
	dies := []Limit{LimitDiesWithProcess}
	for _, c := range []struct {
		name   string
		limits []Limit
		script string
	}{
		{"serves the whole state", nil, `
			configure            =
			full 1 n1 a=1 b=1    = n1[a=1 b=1]
			1>2 a=2              = n1[a=2 b=1]
			2>3 n2 -b            = n2[a=2]
			full 4 c=1           = n2[c=1]`},
		{"a gap and a new session need a Full", nil, `
			configure            =
			0>1                  = ErrResync
			4>5                  = ErrResync
			full 1               = []
			configure {}         =
			1>2                  = ErrResync`},
		{"after an error, the last acknowledged revision counts", nil, `
			configure            =
			full 1 a=1           = [a=1]
			break                =
			1>2 b=1              = [a=1 b=1] broken
			mend                 =
			2>3                  = ErrResync
			1>3 b=2              = [a=1 b=2]`},
		{"one bad Service", nil, `
			configure            =
			full 1 a=1 bad=1     = [a=1 bad=1] failed bad
			role standby         = []
			role active          = [a=1 bad=1]
			1>2 -bad             = [a=1]`},
		{"a role that was not reached is set again", nil, `
			configure            =
			full 1 a=1           = [a=1]
			role yielded         =
			break                =
			role active          = [a=1] broken
			mend                 =
			1>2 b=1              = Busy
			role active          = [a=1]
			role absent          = refuses role
			role nonsense        = refuses role`},
		{"before a first update, a role removes nothing", nil, `
			configure            =
			role standby         =
			full 1 a=1           = []`},
		{"what dies with its process starts in Standby, and frees its sockets when it yields", dies, `
			configure            =
			full 1 a=1           = []
			role active          = [a=1]
			role yielded         = []
			1>2 b=1              = Busy
			role active          = [a=1]
			1>2 b=1              = [a=1 b=1]`},
		{"options are refused", nil, `
			configure null       =
			configure {"a":1}    = refuses options`},
		{"Cleanup in a new process", nil, `
			cleanup              = [] ` + everything + `
			dry                  =`},
		{"Cleanup of what dies with its process", dies, `
			cleanup              =
			configure            =
			full 1 a=1           = []
			cleanup              = [] ` + everything + `
			dry                  =`},
		{"a dry run, a Cleanup that fails, and one that does not", nil, `
			configure            =
			full 1 a=1           = [a=1]
			dry                  = ` + everything + `
			break                =
			cleanup              = [] ` + everything + ` broken
			mend                 =
			cleanup              = [] ` + everything + `
			dry                  =
			1>2                  = ErrResync
			full 2               = []`},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := &witness{}
			dp := Whole(Description{Name: "test", Limits: c.limits}, w.serve)
			for line := range strings.Lines(c.script + "\n") {
				step, want, _ := strings.Cut(strings.TrimSpace(line)+" ", " = ")
				if step = strings.TrimSpace(step); step == "" {
					continue
				}
				if got := w.do(t, dp, step); got != strings.TrimSpace(want) {
					t.Errorf("%s: %q, want %q", step, got, strings.TrimSpace(want))
				}
			}
		})
	}
}

// TestWholeRoles: the calls of the function for each change of role, and for an update after it.
func TestWholeRoles(t *testing.T) {
	given := map[string]string{"standby": "[]", "active": "[a=1]", "draining": "[]", "yielded": ""}
	for from := range given {
		for to, want := range given {
			w := &witness{}
			dp := Whole(Description{Name: "test"}, w.serve)
			for _, step := range []string{"configure", "full 1 a=1", "role " + from} {
				w.do(t, dp, step)
			}
			next := want
			if to == "yielded" {
				next = "Busy"
			}
			if from == to {
				want = ""
			}
			if got := w.do(t, dp, "role "+to); got != want {
				t.Errorf("from %s to %s: %q, want %q", from, to, got, want)
			}
			if got := w.do(t, dp, "1>2"); got != next {
				t.Errorf("from %s to %s, an update: %q, want %q", from, to, got, next)
			}
		}
	}
}

// TestWholeOf: the optional functions, and the Setup of the session.
func TestWholeOf(t *testing.T) {
	var seen []string
	parts := Parts{
		Configure: func(_ context.Context, s Setup) error {
			if strings.Contains(string(s.Options), "wrong") {
				return &Refusal{Field: "options.x", Why: "wrong"}
			}
			return nil
		},
		Serve: func(_ context.Context, setup Setup, s State) error {
			if setup.Log == nil && len(s.Services) == 0 {
				t.Error("Cleanup has no log")
			}
			seen = append(seen, fmt.Sprintf("%s %s %d", setup.StateDir, setup.Options, len(s.Services)))
			return nil
		},
	}
	w := &witness{}
	dp := WholeOf(Description{Name: "test"}, parts)
	for _, p := range []Parts{parts, {Serve: parts.Serve, List: func(context.Context) ([]Served, error) { return nil, nil }}} {
		_, inspects := WholeOf(Description{}, p).(Inspector)
		if _, reports := WholeOf(Description{}, p).(Reporter); reports || inspects != (p.List != nil) { // the suite wants flows of a Reporter
			t.Errorf("with List: %t and without Report, it inspects: %t, and reports: %t", p.List != nil, inspects, reports)
		}
	}
	if got := w.do(t, dp, `configure "wrong"`); got != "refuses options.x" {
		t.Errorf("wrong options: %q", got)
	}
	w.do(t, dp, "cleanup")
	parts.Report = func() Report { return Report{Flows: 7} }
	dp = WholeOf(Description{Name: "test"}, parts)
	if flows := dp.(Reporter).Report().Flows; flows != 7 {
		t.Errorf("it reports %d flows", flows)
	}
	if _, err := dp.Configure(t.Context(), Setup{Options: []byte(`{"x":1}`), StateDir: "/state"}); err != nil {
		t.Fatal(err)
	}
	w.do(t, dp, "full 1 a=1")
	w.do(t, dp, "cleanup")
	if want := []string{"  0", `/state {"x":1} 1`, `/state {"x":1} 0`}; !slices.Equal(seen, want) {
		t.Errorf("%q, want %q", seen, want)
	}
}

// TestWholeAtOwnAddresses: with that limit, Services at addresses that the node lacks fail in every
// role, stay as they are served, and do not reach the function. In Standby Inspect names what
// Active would serve; in Active it calls List.
func TestWholeAtOwnAddresses(t *testing.T) {
	w := &witness{}
	dp := WholeOf(Description{Name: "test", Limits: []Limit{LimitOwnAddressesOnly, LimitDiesWithProcess}}, Parts{
		Serve: func(ctx context.Context, _ Setup, s State) error { return w.serve(ctx, s) },
		List:  func(context.Context) ([]Served, error) { return []Served{{Name: svc("listed", 0).Name}}, nil },
	})
	at := func(service, addr string) Service {
		s := svc(service, 0)
		s.Frontends = []Frontend{{Kind: ClusterIP, Addr: ap(addr), Policy: Cluster}}
		s.Cluster = []Endpoint{{Addr: ap("10.1.0.1:8080")}}
		return s
	}
	inspect := func() (words string) {
		if err := dp.(Inspector).Inspect(t.Context(), func(s Served) error { words += fmt.Sprint(s.Name.Service, s.Endpoints); return nil }); err != nil {
			t.Fatal(err)
		}
		return words
	}
	w.do(t, dp, "configure")
	for i, c := range []struct{ role, given, inspected string }{
		{"standby", "[]", "own[10.1.0.1:8080]"}, {"active", "[own=0 keep other]", "listed[]"}, {"draining", "[]", "own[10.1.0.1:8080]"},
	} {
		w.do(t, dp, "role "+c.role)
		r, err := dp.Sync(t.Context(), Update{Full: true, To: uint64(i), Set: []Service{at("own", "127.0.0.1:80"), at("other", "192.0.2.7:80")}})
		if err != nil || len(r.Failed) != 1 || r.Failed[0].Name.Service != "other" || !strings.Contains(r.Failed[0].Err.Error(), "ip address add 192.0.2.7") {
			t.Errorf("%s: %+v, %v; want other to have failed", c.role, r, err)
		}
		if got := strings.Join(w.calls, " "); got != c.given {
			t.Errorf("%s: the function was given %s", c.role, got)
		}
		w.calls = nil
		if got := inspect(); got != c.inspected {
			t.Errorf("%s: inspected %s, want %s", c.role, got, c.inspected)
		}
	}
	w.do(t, dp, "cleanup")
	w.do(t, dp, "role standby")
	if got := inspect(); got != "" {
		t.Errorf("after Cleanup: %s", got)
	}
}
