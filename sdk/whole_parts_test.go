// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// frontendOf returns a Service with one frontend.
func frontendOf(service, addr string, endpoints ...string) Service {
	s := svc(service, 0)
	s.Frontends = []Frontend{{Kind: ClusterIP, Addr: netip.MustParseAddrPort(addr), Policy: Cluster}}
	for _, ep := range endpoints {
		s.Cluster = append(s.Cluster, Endpoint{Addr: netip.MustParseAddrPort(ep)})
	}
	return s
}

// TestWholeFailures: all other Services are acknowledged, and the failed ones are passed again.
func TestWholeFailures(t *testing.T) {
	broken := errors.New("broken")
	serve := func(_ context.Context, s State) error {
		var failed Failures
		for name := range s.Services {
			if name.Service == "bad" {
				failed = append(failed, Failure{name, broken})
			}
		}
		if failed != nil {
			return fmt.Errorf("serve: %w", failed)
		}
		return nil
	}
	dp := Whole(Description{Name: "test"}, serve)
	if _, err := dp.Configure(t.Context(), Setup{}); err != nil {
		t.Fatal(err)
	}
	r, err := dp.Sync(t.Context(), Update{Full: true, To: 1, Set: []Service{svc("good", 1), svc("bad", 1)}})
	if err != nil || len(r.Failed) != 1 || r.Failed[0].Name.Service != "bad" || !errors.Is(r.Failed[0].Err, broken) {
		t.Fatalf("%+v, %v; want bad to have failed", r, err)
	}
	takes(t, dp, Update{From: 1, To: 2, Delete: []Name{svc("bad", 1).Name}})
	if err := dp.SetRole(t.Context(), Standby); err != nil {
		t.Error(err)
	}
}

// TestWholeOfSetup: Configure can refuse options, and Cleanup has the Setup of the session.
func TestWholeOfSetup(t *testing.T) {
	var seen []string
	dp := WholeOf(Description{Name: "test"}, Parts{
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
	})
	if _, is := dp.(Inspector); is {
		t.Error("it has no List, and is an Inspector")
	}
	if _, err := dp.Configure(t.Context(), Setup{Options: []byte(`"wrong"`)}); err == nil {
		t.Error("wrong options were accepted")
	}
	if _, err := dp.Cleanup(t.Context(), Leftovers{}); err != nil {
		t.Error(err)
	}
	dp = WholeOf(Description{Name: "test"}, dp.(*whole).parts)
	if _, err := dp.Configure(t.Context(), Setup{Options: []byte(`{"x":1}`), StateDir: "/state"}); err != nil {
		t.Fatal(err)
	}
	takes(t, dp, Update{Full: true, To: 1, Set: []Service{svc("web", 1)}})
	if _, err := dp.Cleanup(t.Context(), Leftovers{}); err != nil {
		t.Error(err)
	}
	want := []string{"  0", `/state {"x":1} 1`, `/state {"x":1} 0`}
	if !slices.Equal(seen, want) {
		t.Errorf("%q, want %q", seen, want)
	}
}

// TestWholeOfInspects: in Standby it names what Active would serve, without failed Services; in
// Active it calls List.
func TestWholeOfInspects(t *testing.T) {
	lists := []Served{{Name: svc("listed", 0).Name}}
	dp := WholeOf(Description{Name: "test", Limits: []Limit{LimitDiesWithProcess}}, Parts{
		Serve: func(context.Context, Setup, State) error { return nil },
		Can: func(_ Node, s Service) error {
			if s.Name.Service == "bad" {
				return errors.New("cannot")
			}
			return nil
		},
		List: func(context.Context) ([]Served, error) { return lists, nil },
	})
	inspect := func() string {
		t.Helper()
		var words []string
		if err := dp.(Inspector).Inspect(t.Context(), func(s Served) error {
			words = append(words, fmt.Sprint(s.Name.Service, s.Endpoints))
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return strings.Join(words, " ")
	}
	if _, err := dp.Configure(t.Context(), Setup{}); err != nil {
		t.Fatal(err)
	}
	r, err := dp.Sync(t.Context(), Update{Full: true, To: 1, Set: []Service{frontendOf("web", "10.0.0.1:80", "10.1.0.1:8080", "10.1.0.2:8080"), frontendOf("bad", "10.0.0.2:80")}})
	if err != nil || len(r.Failed) != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	if got, want := inspect(), "web[10.1.0.1:8080 10.1.0.2:8080]"; got != want {
		t.Errorf("in Standby: %s, want %s", got, want)
	}
	for role, want := range map[Role]string{Active: "listed[]", Draining: "web[10.1.0.1:8080 10.1.0.2:8080]"} {
		if err := dp.SetRole(t.Context(), role); err != nil {
			t.Fatal(err)
		}
		if got := inspect(); got != want {
			t.Errorf("%s: %s, want %s", role, got, want)
		}
	}
	if _, err := dp.Cleanup(t.Context(), Leftovers{}); err != nil {
		t.Fatal(err)
	}
	if err := dp.SetRole(t.Context(), Standby); err != nil {
		t.Fatal(err)
	}
	if got := inspect(); got != "" {
		t.Errorf("after Cleanup: %s", got)
	}
}

// TestWholeOfOwnAddresses: with the limit, Services at addresses that the node lacks fail in every
// role, stay as they are served, and are not passed to the function.
func TestWholeOfOwnAddresses(t *testing.T) {
	w := &witness{}
	dp := Whole(Description{Name: "test", Limits: []Limit{LimitOwnAddressesOnly, LimitDiesWithProcess}}, w.serve)
	if _, err := dp.Configure(t.Context(), Setup{}); err != nil {
		t.Fatal(err)
	}
	for _, role := range []Role{Standby, Active} {
		if err := dp.SetRole(t.Context(), role); err != nil {
			t.Fatal(err)
		}
		w.take()
		r, err := dp.Sync(t.Context(), Update{Full: true, To: 1, Set: []Service{frontendOf("own", "127.0.0.1:80"), frontendOf("other", "192.0.2.7:80")}})
		if err != nil || len(r.Failed) != 1 || r.Failed[0].Name.Service != "other" || !strings.Contains(r.Failed[0].Err.Error(), "ip address add 192.0.2.7") {
			t.Errorf("%s: %+v, %v; want other to have failed", role, r, err)
		}
		if got := w.take(); role == Active && got != "[own=0 keep other]" {
			t.Errorf("the function was given %s", got)
		}
	}
}
