// SPDX-License-Identifier: Apache-2.0

package sdktest

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/wire"
)

// describesItself checks the Description, by which hosts choose a dataplane and which users
// read. An unknown word, such as a misspelt limit, would have no effect.
func describesItself(t *trial) {
	d, file := t.description, strings.TrimSuffix(filepath.Base(t.subject.Path), ".exe")
	wrong := func(what string, seen any) { t.fail(mismatch{"Description." + what, fmt.Sprintf("%.80q", seen)}) }
	switch {
	case !regexp.MustCompile(`^[a-z0-9-]+$`).MatchString(d.Name):
		wrong("Name of lower-case letters, digits and -", d.Name)
	case t.subject.Path != "" && file != "pointsman-dataplane-"+d.Name:
		wrong("Name as the binary's name says, "+file+" (pointsman-dataplane-NAME)", d.Name)
	case d.Version == "":
		wrong("Version to say which version of the plugin this is", d.Version)
	case len(d.Options) > 0 && !json.Valid(d.Options):
		wrong("Options to be a JSON schema", d.Options)
	}
	if i := slices.IndexFunc(d.Limits, func(l sdk.Limit) bool { return !slices.Contains(sdk.Limits, l) }); i >= 0 {
		wrong("Limits to be among those of the contract: "+join(sdk.Limits), d.Limits[i])
	}
	if i := slices.IndexFunc(d.Features, func(f sdk.Feature) bool { return !slices.Contains(sdk.Features, f) }); i >= 0 {
		wrong("Features to be among those of the vocabulary: "+join(sdk.Features), d.Features[i])
	}
}

func sameSetupTwice(t *trial) {
	s := t.scenario("cluster-ip")
	t.serve(s)
	before := t.description
	t.during("after being configured again")
	t.need(t.configure())
	if before.Name != t.description.Name || join(before.Limits) != join(t.description.Limits) {
		t.fail(mismatch{fmt.Sprintf("%+v", before), fmt.Sprintf("%+v", t.description)})
	}
	t.serves(s)
	t.serve(s)
}

func firstIsFull(t *trial) { t.resyncs(sdk.Update{}) }

func newSessionStartsOver(t *trial) {
	t.serve(t.scenario("cluster-ip"))
	at := t.revision
	t.need(t.configure())
	t.revision = at
	t.resyncs(sdk.Update{})
}

// olderIsFenced checks that calls of a session are refused after another host has begun one.
func olderIsFenced(t *trial) {
	older, ok := t.dp.(*wire.Remote)
	if !ok || older.Target().Network == "local" {
		t.fail(excused{"the dataplane is in this process, where there is one host"})
	}
	s := t.scenario("cluster-ip")
	t.serve(s)
	t.during("as another host")
	newer, err := wire.Attach(t.ctx, older.Target())
	t.need(err)
	defer newer.Close()
	_, err = newer.Configure(t.ctx, t.setup())
	t.need(err)
	t.during("")
	if _, err := t.sendUpdate(s.Update(0)); !errors.Is(err, wire.ErrFenced) {
		t.fail(mismatch{"ErrFenced for an update of the session before", fmt.Sprint(err)})
	}
	t.need(t.configure())
}

// resyncs checks that an update which does not continue from the state gets ErrResync.
func (t *trial) resyncs(u sdk.Update) {
	if _, err := t.sendUpdate(u); !errors.Is(err, sdk.ErrResync) {
		t.fail(mismatch{"ErrResync for an update that does not continue from the state", fmt.Sprint(err)})
	}
}

func gapResyncs(t *trial) {
	s := t.scenario("cluster-ip")
	t.serve(s)
	t.revision += 5
	t.resyncs(sdk.Update{Delete: []sdk.Name{s.Services[0].Name}})
	t.during("after a refused update")
	t.serves(s)
	t.sync(s.Update(0))
}

// twoScenarios returns the scenarios between which most checks alternate.
func (t *trial) twoScenarios() (a, b Scenario) {
	a, b = t.scenario("cluster-ip"), t.scenario("named-target-port")
	for i := range b.Services { // with names and addresses other than a's, so that both can be served
		b.Services[i].Name.Namespace = "ns9"
	}
	return a, b
}

func fullTwice(t *trial) {
	a, _ := t.twoScenarios()
	for range 2 {
		t.serve(a)
		t.serves(a)
	}
}

func fullDropsStale(t *trial) {
	a, b := t.twoScenarios()
	t.serve(a)
	t.sync(b.Update(0))
	t.serves(b)
}

// deltaTwice checks that a repeated delta is harmless, also if it deletes a Service that never was.
func deltaTwice(t *trial) {
	a, _ := t.twoScenarios()
	empty := a
	empty.Services = nil
	t.serve(empty)
	never := sdk.Name{Namespace: "ns1", Service: "never", Protocol: sdk.TCP, Family: sdk.IPv4}
	for range 2 {
		t.sync(sdk.Update{Set: a.Services, Delete: []sdk.Name{never}})
		t.serves(a)
	}
}

// steps is the length of the random walk.
const steps = 120

// randomWalk goes from scenario to scenario by deltas and compares on the way. At the end, a
// Full of the same state must change nothing.
func randomWalk(t *trial) {
	var states []Scenario
	for _, s := range Scenarios() {
		if len(s.Lacks(t.description)) == 0 {
			s, _ = t.place(s)
			states = append(states, s)
		}
	}
	if len(states) < 2 {
		t.fail(excused{"it claims the features of too few scenarios"})
	}
	at := Scenario{Node: states[0].Node}
	t.serve(at)
	random := rand.New(rand.NewPCG(1, 2)) // the same walk each time
	for i := range steps {
		next := states[random.IntN(len(states))]
		t.during("step %d, %s to %s", i, at.Name, next.Name)
		t.sync(delta(at, next))
		if i%6 == 5 {
			t.serves(next)
		}
		at = next
	}
	t.during("a Full at the end")
	t.sync(at.Update(0))
	t.serves(at)
}

// delta returns the update that leads from a to b.
func delta(a, b Scenario) sdk.Update {
	var u sdk.Update
	if !a.Node.Equal(b.Node) {
		u.Node = &b.Node
	}
	for _, s := range b.Services {
		if !slices.ContainsFunc(a.Services, s.Equal) {
			u.Set = append(u.Set, s)
		}
	}
	for _, s := range a.Services {
		if !slices.ContainsFunc(b.Services, func(o sdk.Service) bool { return o.Name == s.Name }) {
			u.Delete = append(u.Delete, s.Name)
		}
	}
	return u
}

// frontendChangesOwner checks that a frontend can move from one Service to another in one
// update, and back, in either order of their names.
func frontendChangesOwner(t *trial) {
	a := t.scenario("cluster-ip")
	for _, namespace := range []string{"aa", "zz", "aa"} {
		b := a
		b.Services = slices.Clone(a.Services)
		b.Packets = slices.Clone(a.Packets)
		b.Services[0].Name.Namespace = namespace
		t.during("from %s to %s", a.Services[0].Name, b.Services[0].Name)
		t.serve(a)
		t.sync(delta(a, b))
		t.serves(b)
		t.need(ignoreLimitsOrNoTestbed(t.packets(b)))
	}
}
