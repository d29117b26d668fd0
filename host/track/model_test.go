// SPDX-License-Identifier: Apache-2.0

package track

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/pointsman/pointsman/sdk"
)

// A model is a small cluster that changes at random, and two dataplanes that follow it
// while acknowledgements are lost, calls fail half-way, processes die and Services are
// refused. At the end each dataplane must serve exactly what a new tracker with the final
// objects would send.
type model struct {
	t          *testing.T
	rand       *rand.Rand
	tracker    *Tracker
	services   map[string]*corev1.Service
	slices     map[string]*discoveryv1.EndpointSlice
	node       *corev1.Node
	dataplanes []*dataplane
}

func TestModel(t *testing.T) {
	for seed := range uint64(400) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			m := newModel(t, seed)
			for range 120 {
				m.step()
			}
			m.calm()
		})
	}
}

func newModel(t *testing.T, seed uint64) *model {
	tracker, _ := newTracker()
	m := &model{
		t: t, rand: rand.New(rand.NewPCG(seed, 0)), tracker: tracker,
		services: make(map[string]*corev1.Service),
		slices:   make(map[string]*discoveryv1.EndpointSlice),
	}
	for range 2 {
		m.dataplanes = append(m.dataplanes, &dataplane{rand: m.rand, meanwhile: m.change, cursor: tracker.Cursor(everything)})
	}
	return m
}

func (m *model) pick(words ...string) string { return words[m.rand.IntN(len(words))] }

func (m *model) step() {
	if m.rand.IntN(2) == 0 {
		m.change()
		return
	}
	m.dataplanes[m.rand.IntN(len(m.dataplanes))].follow()
}

// change changes the cluster.
func (m *model) change() {
	switch m.rand.IntN(7) {
	case 0, 1:
		m.setService()
	case 2:
		name := m.pick("a", "b", "c", "d")
		delete(m.services, name)
		m.tracker.DeleteService("ns1", name)
	case 3, 4:
		m.setSlice()
	case 5:
		name := m.pick("s1", "s2", "s3", "s4", "s5")
		delete(m.slices, name)
		m.tracker.DeleteSlice("ns1", name)
	default:
		m.node = newNode("n1", m.pick("z1", "z2"))
		m.tracker.SetNode(m.node)
	}
}

// setService sets Services that often have the same addresses.
func (m *model) setService() {
	name := m.pick("a", "b", "c", "d")
	svc := newService(name, m.pick("172.30.0.1", "172.30.0.2", "172.30.0.3"),
		created(int64(m.rand.IntN(3))),
		externalIPs(m.pick("203.0.113.1", "203.0.113.2", "172.30.0.1")),
		balancer(m.pick("203.0.113.1", "203.0.113.3")),
		nodePort(int32(30000+m.rand.IntN(3))),
	)
	if m.rand.IntN(3) == 0 {
		healthCheck(int32(31000 + m.rand.IntN(2)))(svc)
	}
	m.services[name] = svc
	m.tracker.SetService(svc)
}

func (m *model) setSlice() {
	name := m.pick("s1", "s2", "s3", "s4", "s5")
	var endpoints []string
	for range m.rand.IntN(4) {
		endpoints = append(endpoints, fmt.Sprintf("10.180.%d.%d %s %s", m.rand.IntN(2), m.rand.IntN(4), m.pick("n1", "n2"), m.pick("", "", "unready", "leaving")))
	}
	slice := newSlice(name, m.pick("a", "b", "c", "d", ""), endpoints...)
	if m.rand.IntN(2) == 0 {
		for i := range slice.Endpoints {
			slice.Endpoints[i].Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: m.pick("z1", "z2")}}}
		}
	}
	m.slices[name] = slice
	m.tracker.SetSlice(slice)
}

// calm lets both dataplanes follow without faults, and compares the result.
func (m *model) calm() {
	truth, _ := newTracker()
	if m.node != nil {
		truth.SetNode(m.node)
	}
	for _, svc := range m.services {
		truth.SetService(svc)
	}
	for _, slice := range m.slices {
		truth.SetSlice(slice)
	}
	full, _ := truth.Cursor(everything).Next()
	if !m.tracker.node.Equal(*full.Node) {
		m.t.Fatalf("the node is %+v, should be %+v", m.tracker.node, full.Node)
	}
	for i, p := range m.dataplanes {
		p.settle(m.t)
		p.compare(m.t, fmt.Sprintf("dataplane %d", i), full)
	}
}

// A dataplane is an unreliable dataplane.
type dataplane struct {
	rand      *rand.Rand
	meanwhile func() // called while an update is in flight
	cursor    *Cursor
	state     sdk.State
}

// follow processes one update, with random faults.
func (p *dataplane) follow() {
	u, ok := p.cursor.Next()
	if !ok {
		return
	}
	if _, err := p.state.Apply(u); err != nil {
		p.cursor.Resync()
		return
	}
	if p.rand.IntN(2) == 0 {
		p.meanwhile()
	}
	switch p.rand.IntN(10) {
	case 0: // the call fails half-way
	case 1: // the call succeeds, and the answer is lost
		p.state.Confirm()
	case 2: // the process dies, and its successor remembers nothing of the session
		p.state = sdk.State{}
		p.cursor.Resync()
	case 3: // some Services fail
		failed := p.failures(u)
		p.state.Confirm(failed...)
		p.cursor.Ack(u.To, failed)
		if p.rand.IntN(2) == 0 {
			p.cursor.Retry()
		}
	default:
		p.state.Confirm()
		p.cursor.Ack(u.To, nil)
	}
}

// failures returns the failures of half of the Services of u.
func (p *dataplane) failures(u sdk.Update) (failed []sdk.Failure) {
	names := slices.Clone(u.Delete)
	for _, s := range u.Set {
		names = append(names, s.Name)
	}
	for _, name := range names {
		switch n := p.rand.IntN(40); {
		case n == 0:
			failed = append(failed, sdk.Failure{Name: name, Err: &sdk.Refusal{Why: "not here"}})
		case n < 20:
			failed = append(failed, sdk.Failure{Name: name, Err: errors.New("broken")})
		}
	}
	return failed
}

// settle follows until there is no update. Refused Services are not sent again, so it begins a
// new session if there are any.
func (p *dataplane) settle(t *testing.T) {
	p.cursor.Retry()
	if slices.ContainsFunc(p.cursor.Status().Failed, func(f sdk.Failure) bool { return refused(f.Err) }) {
		p.cursor.Resync()
	}
	for range 10 {
		u, ok := p.cursor.Next()
		if !ok {
			return
		}
		if _, err := p.state.Apply(u); err != nil {
			p.cursor.Resync()
			continue
		}
		p.state.Confirm()
		p.cursor.Ack(u.To, nil)
	}
	t.Fatal("there is always another update")
}

func (p *dataplane) compare(t *testing.T, who string, full sdk.Update) {
	t.Helper()
	for _, s := range full.Set {
		if got, ok := p.state.Services[s.Name]; !ok || !got.Equal(s) {
			t.Errorf("%s serves\n%+v\nwant\n%+v", who, got, s)
		}
	}
	if len(p.state.Services) != len(full.Set) {
		t.Errorf("%s serves %d, want %d", who, len(p.state.Services), len(full.Set))
	}
	if s := p.cursor.Status(); s.Pending != 0 || len(s.Failed) != 0 {
		t.Errorf("%s: at the end the cursor says %+v", who, s)
	}
}
