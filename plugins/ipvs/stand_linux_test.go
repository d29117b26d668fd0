// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest"
	"github.com/pointsman/pointsman/sdk/sdktest/netns"
	"github.com/pointsman/pointsman/test/eventually"
)

// A stand is a node with hosts around it, and the dataplane on it.
type stand struct {
	*testing.T
	node     *netns.Testbed
	dir      string
	options  string
	plugin   *plugin
	revision uint64
	stage    sdktest.Stage
}

// newStand has a dataplane that is Active, with nothing to serve.
func newStand(t *testing.T, options string) *stand {
	t.Helper()
	skipTaken(t)
	s := &stand{T: t, node: world(t), dir: t.TempDir(), options: options}
	s.start()
	t.Cleanup(s.clean)
	return s
}

// start begins a life of the dataplane, as a process does.
func (s *stand) start() {
	s.Helper()
	s.plugin, s.revision = newPlugin(s.dir, thisMachine()), 0
	if _, err := s.plugin.Configure(s.Context(), sdk.Setup{Options: []byte(s.options)}); err != nil {
		s.Fatal(err)
	}
}

// restart ends one life without a word, as kill -9 does, and begins another.
func (s *stand) restart() {
	s.Helper()
	if err := s.plugin.Close(); err != nil {
		s.Fatal(err)
	}
	s.start()
}

func (s *stand) clean() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if s.stage != nil {
		s.stage.Close()
	}
	if _, err := s.plugin.Cleanup(ctx, sdk.Leftovers{}); err != nil {
		s.Error(err)
	}
	if err := s.plugin.Close(); err != nil {
		s.Error(err)
	}
}

// scenario reads one as files have them, and lets its endpoints answer.
func (s *stand) scenario(text string) sdktest.Scenario {
	s.Helper()
	read, err := sdktest.Parse("test.txtar", []byte("In a test.\n"+text))
	if err != nil {
		s.Fatal(err)
	}
	placed, leftOut := s.node.Place(read)
	if len(leftOut) > 0 {
		s.Fatal(leftOut)
	}
	if s.stage != nil {
		s.stage.Close()
	}
	if s.stage, err = s.node.Open(s.Context(), nil, placed); err != nil {
		s.Fatal(err)
	}
	return placed
}

// serve makes the dataplane serve a scenario and nothing else.
func (s *stand) serve(text string) sdktest.Scenario {
	s.Helper()
	placed := s.scenario(text)
	s.sync(placed.Update(s.revision + 1))
	s.role(sdk.Active)
	return placed
}

func (s *stand) sync(u sdk.Update) {
	s.Helper()
	u.From, u.To = s.revision, s.revision+1
	if u.Full {
		u.From = 0
	}
	result, err := s.plugin.Sync(s.Context(), u)
	if err != nil || len(result.Failed) > 0 {
		s.Fatalf("sync: %v %+v", err, result)
	}
	s.revision = u.To
}

func (s *stand) role(r sdk.Role) {
	s.Helper()
	if err := s.plugin.SetRole(s.Context(), r); err != nil {
		s.Fatal(err)
	}
}

// packets sends those of a scenario, several times each.
func (s *stand) packets(of sdktest.Scenario) {
	s.Helper()
	for _, p := range of.Packets {
		for range 1 + 2*len(p.Want.Endpoints) {
			s.packet(p)
		}
	}
}

func (s *stand) packet(p sdktest.Packet) sdktest.Answer {
	s.Helper()
	a, err := s.stage.Send(s.Context(), p)
	if err != nil {
		s.Errorf("line %d, %s: %v", p.Line, p.Text, err)
	}
	want := p.Want
	switch {
	case want.Unserved && a.Verdict != sdk.Forward:
	case want.Unserved, a.Verdict != want.Verdict, a.Verdict == sdk.Forward && !slices.Contains(want.Endpoints, a.Endpoint):
		s.Errorf("line %d, %s: seen %s", p.Line, p.Text, a)
	case a.Verdict != sdk.Forward, p.From.From == sdk.OnNode: // it may be masqueraded as itself
	case (a.Client != p.From.Addr) != want.Masquerades(a.Endpoint):
		s.Errorf("line %d, %s: the endpoint saw %s", p.Line, p.Text, a.Client)
	}
	return a
}

// until waits until what is asked for is so.
func (s *stand) until(what string, is func() bool) {
	s.Helper()
	eventually.True(s, what, is)
}

// services are the virtual services as ipvsadm shows them.
func (s *stand) services() []string { return lines(run(s.T, "ipvsadm", "-Sn")) }

func lines(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == '\n' })
}

var addrPort = netip.MustParseAddrPort
