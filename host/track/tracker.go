// SPDX-License-Identifier: Apache-2.0

package track

import (
	"cmp"
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

// A Tracker holds the desired state of this node. It is safe for concurrent use.
type Tracker struct {
	report func(Notice) // called without the mutex

	now func() time.Time

	gate sync.RWMutex // write-locked while frozen: see Freeze

	// mu guards the fields below, and the fields of every cursor.
	mu       sync.Mutex
	facts    Facts
	seen     nodeRecord                // the Node object
	ranges   map[string][]netip.Prefix // of ClusterIPs, by ServiceCIDR object
	node     *sdk.Node                 // for dataplanes; replaced, never modified
	thisNode reach.ThisNode
	pods     podRanges
	strayed  map[sdk.Family]bool // an endpoint contradicts pods
	synced   bool
	services map[Key]*service
	slices   map[Key]*slice
	values   map[sdk.Name]*sdk.Service // desired state; values are replaced, never modified
	owners   owners
	checked  map[*service]bool     // Services with a healthCheckNodePort
	others   map[netip.Addr]string // addresses of other Nodes; nil if not known
	changes  Changes
	cursors  []*Cursor
	notices  []Notice // unlock reports them

	syncedSince time.Time // when Synced was called; zero if it was not
	nodeSince   time.Time // when node last changed

	// Each object is read into these buffers first. If it equals the record we have, it is
	// dropped and no memory was allocated.
	nextService reach.Service
	nextSlice   reach.Slice
}

// A Key names a Kubernetes object of a known kind.
type Key struct{ Namespace, Name string }

func (k Key) String() string { return k.Namespace + "/" + k.Name }

func (k Key) compare(g Key) int {
	return cmp.Or(cmp.Compare(k.Namespace, g.Namespace), cmp.Compare(k.Name, g.Name))
}

// A slice is a tracked EndpointSlice.
type slice struct {
	name    string
	service *service // nil if the label with its Service's name is missing
	record  reach.Slice
}

// New returns an empty tracker. It calls report, which may be nil, with each notice; report may
// call the tracker.
func New(report func(Notice)) *Tracker {
	return &Tracker{
		report:   report,
		node:     &sdk.Node{},
		ranges:   make(map[string][]netip.Prefix),
		strayed:  make(map[sdk.Family]bool),
		services: make(map[Key]*service),
		slices:   make(map[Key]*slice),
		values:   make(map[sdk.Name]*sdk.Service),
		owners:   make(owners),
		checked:  make(map[*service]bool),
		now:      time.Now,
	}
}

// Configure sets the operator's facts about this node. It may be called again when they change.
func (t *Tracker) Configure(f Facts) {
	t.lockForChange()
	defer t.unlock()
	if f.NodeName != t.facts.NodeName {
		t.seen = nodeRecord{} // it describes another node
	}
	t.facts = f
	t.refreshNode()
}

// Synced tells the tracker that it has all objects that exist at the start. Before that,
// cursors have no updates: a dataplane must not take Services that are not loaded yet for
// deleted Services.
func (t *Tracker) Synced() {
	t.lockForChange()
	defer t.unlock()
	if !t.synced {
		t.synced, t.syncedSince = true, t.now()
	}
	for _, c := range t.cursors {
		c.signal()
	}
}

// SetNode adds or replaces a Node object. Other nodes' objects are ignored.
func (t *Tracker) SetNode(n *corev1.Node) {
	t.lockForChange()
	defer t.unlock()
	if n.Name == t.facts.NodeName {
		before := t.seen.refused
		t.seen = readNode(n)
		t.warnNew(n.Name, before, t.seen.refused)
		t.refreshNode()
	}
}

// DeleteNode removes a Node object. The tracker keeps using its last content, because the
// machine is still there.
func (t *Tracker) DeleteNode(name string) {
	t.lockForChange()
	defer t.unlock()
	if name == t.facts.NodeName {
		t.warn(NodeDeleted, name, "this node's Node object is gone; its last addresses and labels stay in force")
	}
}

// refreshNode recomputes what depends on this node. It refreshes all Services only if a fact
// changed on which the choice of endpoints and frontends depends.
func (t *Tracker) refreshNode() {
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
	thisNode := facts.thisNode(t.seen, *t.node)
	thisNode.Others = t.thisNode.Others
	if thisNode.Equal(t.thisNode) {
		return
	}
	t.thisNode = thisNode
	for _, svc := range t.services {
		t.refreshService(svc)
	}
}

// SetService adds or replaces a Service.
func (t *Tracker) SetService(obj *corev1.Service) {
	t.lockForChange()
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
	t.refreshService(svc)
}

// DeleteService removes a Service.
func (t *Tracker) DeleteService(namespace, name string) {
	t.lockForChange()
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
	t.refreshService(svc)
	t.deleteUnused(svc)
}

// SetSlice adds or replaces an EndpointSlice. It may arrive before its Service, and its label
// may move it to another Service.
func (t *Tracker) SetSlice(obj *discoveryv1.EndpointSlice) {
	t.lockForChange()
	defer t.unlock()
	key := Key{obj.Namespace, obj.Name}
	if !reach.Ours(obj) {
		t.dropSlice(key)
		return
	}
	var owner Key // zero if the label is missing
	if name := obj.Labels[discoveryv1.LabelServiceName]; name != "" {
		owner = Key{obj.Namespace, name}
	}
	t.nextSlice.Read(obj, t.facts.AllowLoopback)
	s := t.slices[key]
	if s != nil && s.owner() == owner && s.record.Equal(&t.nextSlice) {
		return
	}
	if s != nil && s.owner() != owner {
		t.dropSlice(key)
		s = nil
	}
	if s == nil {
		s = t.joinSlice(key, owner)
	}
	before := s.record.Family
	t.warnNew("EndpointSlice "+key.String(), s.record.Problems, t.nextSlice.Problems)
	s.record = t.nextSlice.Clone()
	if t.noteStrays(&s.record) {
		t.refreshNode()
	}
	t.changes.Slices++
	if s.service != nil && t.recomputeService(s.service, before|s.record.Family) {
		t.addTrigger(obj)
	}
}

// owner returns the key of the Service that s belongs to.
func (s *slice) owner() Key {
	if s.service == nil {
		return Key{}
	}
	return s.service.key
}

// joinSlice creates a slice and inserts it into the list of its Service. The list is in order
// of name, because the order decides between duplicate endpoints.
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
	t.lockForChange()
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
	if svc := s.service; svc != nil {
		svc.slices = slices.DeleteFunc(svc.slices, func(o *slice) bool { return o == s })
		t.recomputeService(svc, s.record.Family)
		t.deleteUnused(svc)
	}
}

// serviceOf returns the Service with that key, and creates it if no object has referred to it
// before.
func (t *Tracker) serviceOf(key Key) *service {
	svc := t.services[key]
	if svc == nil {
		svc = &service{key: key}
		t.services[key] = svc
	}
	return svc
}

// deleteUnused deletes a service that has neither a Service object nor slices.
func (t *Tracker) deleteUnused(svc *service) {
	if svc.spec == nil && len(svc.slices) == 0 {
		delete(t.services, svc.key)
	}
}

// setValue sets the desired value of name; nil removes it. It reports whether that is a change.
func (t *Tracker) setValue(name sdk.Name, value *sdk.Service) bool {
	old := t.values[name]
	if equalValues(old, value) {
		return false
	}
	if value == nil {
		delete(t.values, name)
	} else {
		t.values[name] = value
	}
	for _, c := range t.cursors {
		c.noteChange(name)
	}
	return true
}

// equalValues reports whether two values are equal; nil means none.
func equalValues(a, b *sdk.Service) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a == b || a.Equal(*b)
}
