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

// A fixture is a node with hosts around it, and a dataplane that runs on it.
type fixture struct {
	*instance
	node  *netns.Testbed
	stage sdktest.Stage
}

// newFixture returns a fixture whose dataplane is configured and has no Services.
func newFixture(t *testing.T, options string) *fixture {
	t.Helper()
	skipIfTaken(t)
	s := &fixture{instance: &instance{T: t, machine: thisMachine(), options: options, dir: t.TempDir()}, node: world(t)}
	s.begin()
	t.Cleanup(s.clean)
	return s
}

func (s *fixture) clean() {
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

// scenario parses a scenario, places it on the node's network, and starts its endpoints.
func (s *fixture) scenario(text string) sdktest.Scenario {
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

// serve makes the dataplane serve exactly the Services of a scenario, and become Active.
func (s *fixture) serve(text string) sdktest.Scenario {
	s.Helper()
	placed := s.scenario(text)
	s.sync(placed.Update(s.revision + 1))
	s.role(sdk.Active)
	return placed
}

// packets sends each packet of a scenario several times.
func (s *fixture) packets(of sdktest.Scenario) {
	s.Helper()
	for _, p := range of.Packets {
		for range 1 + 2*len(p.Want.Endpoints) {
			s.packet(p)
		}
	}
}

func (s *fixture) packet(p sdktest.Packet) sdktest.Answer {
	s.Helper()
	a, err := s.stage.Send(s.Context(), p)
	if err != nil {
		s.Errorf("line %d, %s: %v", p.Line, p.Text, err)
	}
	want := p.Want
	switch {
	case want.Unserved && a.Verdict != sdk.Forward:
	case want.Unserved, a.Verdict != want.Verdict, a.Verdict == sdk.Forward && !slices.Contains(want.Endpoints, a.Endpoint):
		s.Errorf("line %d, %s: got %s", p.Line, p.Text, a)
	case a.Verdict != sdk.Forward, p.From.From == sdk.OnNode: // masquerading would not change the source address
	case (a.Client != p.From.Addr) != want.Masquerades(a.Endpoint):
		s.Errorf("line %d, %s: the endpoint saw %s", p.Line, p.Text, a.Client)
	}
	return a
}

// until waits until the condition holds.
func (s *fixture) until(what string, is func() bool) {
	s.Helper()
	eventually.True(s, what, is)
}

// services returns the virtual servers as ipvsadm prints them.
func (s *fixture) services() []string { return lines(run(s.T, "ipvsadm", "-Sn")) }

func lines(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == '\n' })
}

var addrPort = netip.MustParseAddrPort
