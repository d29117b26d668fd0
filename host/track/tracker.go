// SPDX-License-Identifier: Apache-2.0

package track

import (
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/pointsman/pointsman/host/reach"
	"github.com/pointsman/pointsman/sdk"
)

// A Tracker keeps what should be served on this node. It is safe for concurrent use.
type Tracker struct {
	report  func(Notice)  // called with the mutex free
	checked chan struct{} // holds one token while health checks may have changed

	now func() time.Time

	gate sync.RWMutex // held for writing, no change comes in

	// mu guards everything below, and the insides of every cursor.
	mu       sync.Mutex
	facts    Facts
	seen     nodeRecord                // the Node object
	ranges   map[string][]netip.Prefix // of ClusterIPs, by the ServiceCIDR that says so
	node     *sdk.Node                 // replaced, never written to
	here     reach.Here
	pods     podRanges
	strays   map[sdk.Family]int // endpoints that contradict pods
	synced   bool
	services map[Key]*service
	slices   map[Key]*slice
	values   map[sdk.Name]*sdk.Service // what to serve; values are replaced, never written to
	owners   owners
	screen   screen
	others   map[netip.Addr]string // addresses of other Nodes; nil: not known
	checks   map[Key]HealthCheck
	changes  Changes
	cursors  []*Cursor
	notices  []Notice // to be reported as soon as mu is free

	syncedSince time.Time // zero: not yet
	nodeSince   time.Time // when node last changed

	// What the next object is read into: equal to what we have, it is forgotten
	// and cost nothing.
	nextService reach.Service
	nextSlice   reach.Slice
}

// A Key names a Kubernetes object of a known kind.
type Key struct{ Namespace, Name string }

func (k Key) String() string { return k.Namespace + "/" + k.Name }

// A slice is an EndpointSlice as tracked.
type slice struct {
	name    string
	service *service // nil: it does not say whose it is
	record  reach.Slice
	whole   *reach.Slice // with the endpoints that are cluster IPs, which record lacks; nil: there are none
	strays  int          // see podRanges
}

// New returns a tracker of nothing yet. What there is to say goes to report, which may
// be nil, and may call the tracker.
func New(report func(Notice)) *Tracker {
	return &Tracker{
		report:   report,
		node:     &sdk.Node{},
		ranges:   make(map[string][]netip.Prefix),
		strays:   make(map[sdk.Family]int),
		services: make(map[Key]*service),
		slices:   make(map[Key]*slice),
		values:   make(map[sdk.Name]*sdk.Service),
		owners:   owners{queues: make(map[claim][]holder), addresses: make(addresses)},
		screen:   screen{blocks: make(map[netip.Prefix]bool), slices: make(map[netip.Addr]map[Key]bool)},
		checks:   make(map[Key]HealthCheck),
		checked:  make(chan struct{}, 1),
		now:      time.Now,
	}
}

// Configure sets what the operator says of this node. It may be called again when
// that changes.
func (t *Tracker) Configure(f Facts) {
	t.admit()
	defer t.unlock()
	if f.NodeName != t.facts.NodeName {
		t.seen = nodeRecord{} // another node's
	}
	t.facts = f
	t.renode()
}

// Synced marks everything there was at the start as known. Until then
// cursors have nothing to hand out, so that a dataplane does not take the missing for
// gone.
func (t *Tracker) Synced() {
	t.admit()
	defer t.unlock()
	if !t.synced {
		t.synced, t.syncedSince = true, t.now()
	}
	post(t.checked)
	for _, c := range t.cursors {
		c.signal()
	}
}

// SetNode adds or replaces a Node object; any but this node's is ignored.
func (t *Tracker) SetNode(n *corev1.Node) {
	t.admit()
	defer t.unlock()
	if n.Name == t.facts.NodeName {
		before := t.seen.refused
		t.seen = readNode(n)
		t.warnNew(n.Name, before, t.seen.refused)
		t.renode()
	}
}

// DeleteNode removes a Node object. What it last said stays in force:
// the machine is still there.
func (t *Tracker) DeleteNode(name string) {
	t.admit()
	defer t.unlock()
	if name == t.facts.NodeName {
		t.warn(NodeDeleted, name, "this node's Node object is gone; its last addresses and labels stay in force")
	}
}

// renode follows a change of what is known of this node. Only a change that
// decisions depend on makes every Service be decided again.
func (t *Tracker) renode() {
	facts := t.facts
	facts.ServiceCIDRs = t.serviceCIDRs()
	n := facts.node(t.seen)
	t.setPods(facts.podRanges(t.seen, n))
	n.PodCIDRs = t.podCIDRs()
	if !n.Equal(*t.node) {
		t.node, t.nodeSince = &n, t.now()
		for _, c := range t.cursors {
			if c.nodeSince.IsZero() {
				c.nodeSince = t.nodeSince
			}
			c.signal()
		}
	}
	here := facts.here(t.seen, *t.node)
	here.Others = t.here.Others
	if here.Equal(t.here) {
		return
	}
	t.here = here
	for _, keys := range t.screen.slices {
		for key := range keys {
			s := t.slices[key]
			t.use(key, s, *s.said())
			t.recount(s, s.record.Family)
		}
	}
	for _, svc := range t.services {
		t.renew(svc)
	}
}

// SetService adds a Service that is new, or replaces one that may have changed.
func (t *Tracker) SetService(obj *corev1.Service) {
	t.admit()
	defer t.unlock()
	key := Key{obj.Namespace, obj.Name}
	if !reach.Proxied(obj) {
		t.dropService(key)
		return
	}
	t.nextService.Read(obj)
	svc := t.services[key]
	if svc != nil && svc.spec != nil && svc.spec.Equal(&t.nextService) {
		return
	}
	svc = t.serviceOf(key)
	svc.spec = t.nextService.Clone()
	t.changes.Services++
	t.renew(svc)
}

// DeleteService removes a Service.
func (t *Tracker) DeleteService(namespace, name string) {
	t.admit()
	defer t.unlock()
	t.dropService(Key{namespace, name})
}

func (t *Tracker) dropService(key Key) {
	svc := t.services[key]
	if svc == nil || svc.spec == nil {
		return
	}
	svc.spec = nil
	t.changes.Services++
	t.renew(svc)
	t.forget(svc)
}

// SetSlice adds or replaces an EndpointSlice. It may come
// before its Service, and move from one to another.
func (t *Tracker) SetSlice(obj *discoveryv1.EndpointSlice) {
	t.admit()
	defer t.unlock()
	key := Key{obj.Namespace, obj.Name}
	if !reach.Ours(obj) {
		t.dropSlice(key)
		return
	}
	var owner Key // zero: the slice does not say
	if name := obj.Labels[discoveryv1.LabelServiceName]; name != "" {
		owner = Key{obj.Namespace, name}
	}
	t.nextSlice.Read(obj, t.facts.AllowLoopback)
	s := t.slices[key]
	if s != nil && s.owner() == owner && s.said().Equal(&t.nextSlice) {
		return
	}
	if s != nil && s.owner() != owner {
		t.dropSlice(key)
		s = nil
	}
	if s == nil {
		s = t.joinSlice(key, owner)
	}
	before := s.record
	t.screen.remove(key, s.said())
	said := t.nextSlice.Clone()
	t.screen.add(key, &said)
	t.use(key, s, said)
	t.recount(s, before.Family)
	t.changes.Slices++
	if s.service != nil && t.settle(s.service, before.Family|s.record.Family) {
		t.triggered(obj)
	}
}

// owner returns the key of the Service that s was joined with.
func (s *slice) owner() Key {
	if s.service == nil {
		return Key{}
	}
	return s.service.key
}

// joinSlice makes a slice and joins it with those of its Service, in order of
// name: the order decides between duplicates.
func (t *Tracker) joinSlice(key, owner Key) *slice {
	s := &slice{name: key.Name}
	t.slices[key] = s
	if owner == (Key{}) {
		t.warn(SliceNotJoined, "EndpointSlice "+key.String(), "label "+discoveryv1.LabelServiceName+" is missing, so it belongs to no Service; its endpoints are not used")
		return s
	}
	s.service = t.serviceOf(owner)
	i, _ := slices.BinarySearchFunc(s.service.slices, s.name, func(o *slice, name string) int { return strings.Compare(o.name, name) })
	s.service.slices = slices.Insert(s.service.slices, i, s)
	return s
}

// DeleteSlice removes an EndpointSlice.
func (t *Tracker) DeleteSlice(namespace, name string) {
	t.admit()
	defer t.unlock()
	t.dropSlice(Key{namespace, name})
}

func (t *Tracker) dropSlice(key Key) {
	s := t.slices[key]
	if s == nil {
		return
	}
	delete(t.slices, key)
	t.changes.Slices++
	t.screen.remove(key, s.said())
	family := s.record.Family
	s.record = reach.Slice{}
	t.recount(s, family)
	if svc := s.service; svc != nil {
		svc.slices = slices.DeleteFunc(svc.slices, func(o *slice) bool { return o == s })
		t.settle(svc, family)
		t.forget(svc)
	}
}

// serviceOf returns the Service of that key, made if nothing named it before.
func (t *Tracker) serviceOf(key Key) *service {
	svc := t.services[key]
	if svc == nil {
		svc = &service{key: key}
		t.services[key] = svc
	}
	return svc
}

// forget drops a Service that nothing names any more.
func (t *Tracker) forget(svc *service) {
	if svc.spec == nil && len(svc.slices) == 0 {
		delete(t.services, svc.key)
	}
}

// put makes value what is to be served under name, nil: nothing. It reports
// whether that is a change.
func (t *Tracker) put(name sdk.Name, value *sdk.Service) bool {
	old := t.values[name]
	if same(old, value) {
		return false
	}
	if value == nil {
		delete(t.values, name)
	} else {
		t.values[name] = value
	}
	for _, c := range t.cursors {
		c.changed(name)
	}
	return true
}

// same reports whether two values are equal, nil being none.
func same(a, b *sdk.Service) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a == b || a.Equal(*b)
}
