// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"fmt"
	"slices"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/nftnl"
	"github.com/pointsman/pointsman/plugins/internal/reconcile"
	"github.com/pointsman/pointsman/sdk"
)

// An entryKey identifies one entry of the table: a set, a chain, or an element of a set.
type entryKey struct {
	kind     entryKind
	name     string // the name of the set or chain; for an element: of its set
	key, end string // for an element: its key; for a range: first and last key
}

type entryKind uint8

const (
	ofSet entryKind = iota
	ofChain
	ofElement
)

// An entryValue has the data and comment of an element, the rules and hook of a chain, or the shape of a set.
type entryValue struct{ data, note string }

func elementKey(set, key string) entryKey { return entryKey{kind: ofElement, name: set, key: key} }

// element returns the nf_tables element of an entry.
func (k entryKey) element(v entryValue) nftnl.Element {
	return nftnl.Element{Key: k.key, KeyEnd: k.end, Data: v.data, Comment: v.note}
}

// Phases of a change. Members are removed first: while a member exists, packets can add clients for it, so the
// clients of a removed endpoint can be removed completely only after it.
const (
	removeMembers = iota
	changeRest
)

// Kind implements reconcile.Mode.
func (f ip) Kind(k entryKey) reconcile.Kind {
	kind := reconcile.Kind{Add: changeRest, Remove: changeRest, Label: k.name}
	switch k.kind {
	case ofSet:
		kind.Rebuild, kind.Label = true, "set "+k.name
	case ofChain:
		kind.Label = "chain " + k.name
	default:
		kind.Container = k.name
		switch k.name {
		case "vips", "external", "hairpin":
			kind.Counted = true
		case "members", "members-local":
			kind.Remove = removeMembers
		case "own":
			kind.Container, kind.Label = "", "addresses that take node ports"
		}
	}
	return kind
}

// A layout has the sets and chains of a table.
type layout struct {
	sets   map[string]nftnl.Set
	chains map[string]chain
}

// newLayout returns the layout for a node, with the base chains of a role.
func newLayout(n nodeConfig, role sdk.Role) layout {
	l := layout{make(map[string]nftnl.Set), make(map[string]chain)}
	for _, s := range layoutSets(n.ip, n.parts) {
		l.sets[s.Name] = s
	}
	for _, c := range layoutChains(n, role) {
		l.chains[c.Name] = c
	}
	return l
}

// entries returns the entries of the layout.
func (l layout) entries() map[entryKey]entryValue {
	all := make(map[entryKey]entryValue, len(l.sets)+len(l.chains))
	for name, s := range l.sets {
		all[entryKey{kind: ofSet, name: name}] = entryValue{data: s.Shape()}
	}
	for name, c := range l.chains {
		all[entryKey{kind: ofChain, name: name}] = chainValue(c.Hook, c.Rules)
	}
	return all
}

// chainValue returns the value of a chain. It is the same for a rendered chain and for the one that the kernel
// lists.
func chainValue(hook *nftnl.Hook, rules []rule) (v entryValue) {
	if hook != nil {
		v.note = fmt.Sprintf("%s %d %d", hook.Type, hook.At, hook.Priority)
	}
	for _, r := range rules {
		text := nftnl.Canonical(r)
		v.data += fmt.Sprintf("%d:%s", len(text), text)
	}
	return v
}

// Fixed returns the sets and chains that the node, the role and the Services need, and the addresses that take
// node ports.
func (f *family) Fixed(role sdk.Role, need map[string]bool) map[entryKey]entryValue {
	f.node.parts = partsOf(f.ip, need)
	f.kernel.layout = newLayout(f.node, role)
	all := f.kernel.layout.entries()
	for _, p := range f.node.own {
		if p.IsSingleIP() { // a longer prefix has a rule of its own
			all[elementKey("own", string(p.Addr().AsSlice()))] = entryValue{}
		}
	}
	return all
}

// partsOf returns the parts of the layout that have the needed sets.
func partsOf(f ip, need map[string]bool) (h parts) {
	h.classes = make(map[index]uint32)
	for _, p := range indexes(f) {
		if need[p.name("frontends")] {
			h.classes[p] = minClass
		}
		for _, n := range classes(Ceiling) {
			if need[p.name(classSet(n))] {
				h.classes[p] = max(minClass, n)
			}
		}
	}
	for set := range need {
		if t, is := parseTimeoutSet(set); is {
			h.timeouts = append(h.timeouts, t)
		}
	}
	slices.SortFunc(h.timeouts, func(a, b time.Duration) int { return int(a - b) })
	return h
}
