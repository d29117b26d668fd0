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

// An entryKey names one entry of the table: a set, a chain, or an element of a set.
type entryKey struct {
	kind     entryKind
	name     string // of the set or the chain; of an element: of its set
	key, end string // of an element: its key, and of a range the last one
}

type entryKind uint8

const (
	ofSet entryKind = iota
	ofChain
	ofElement
)

// An entryValue is the data and the comment of an element, the rules and the hook of a chain, or the shape of a set.
type entryValue struct{ data, note string }

func elementKey(set, key string) entryKey { return entryKey{kind: ofElement, name: set, key: key} }

// element returns the element of nf_tables that an entry stands for.
func (k entryKey) element(v entryValue) nftnl.Element {
	return nftnl.Element{Key: k.key, KeyEnd: k.end, Data: v.data, Comment: v.note}
}

// Phases of a change. Elements of members go before everything else: by them packets add clients to sets, and a client whose
// endpoint goes must be removed with it.
const (
	membersGo = iota
	theRest
)

// Kind classifies the entries of the table.
func (f ip) Kind(k entryKey) reconcile.Kind {
	kind := reconcile.Kind{Add: theRest, Remove: theRest, Label: k.name}
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
			kind.Remove = membersGo
		case "own":
			kind.Container, kind.Label = "", "addresses that take node ports"
		}
	}
	return kind
}

// A layout is the sets and the chains of a table.
type layout struct {
	sets   map[string]nftnl.Set
	chains map[string]chain
}

// newLayout returns the layout of a node, with the base chains of a role.
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

// chainValue returns the value of a chain, the same for one that is written and one that the kernel lists.
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

// Fixed returns the layout that the node, the role and the Services need, and the addresses that take node ports.
func (f *family) Fixed(role sdk.Role, need map[string]bool) map[entryKey]entryValue {
	f.node.parts = partsOf(f.ip, need)
	f.kernel.layout = newLayout(f.node, role)
	all := f.kernel.layout.entries()
	for _, p := range f.node.own {
		if p.IsSingleIP() { // each longer one has a rule
			all[elementKey("own", string(p.Addr().AsSlice()))] = entryValue{}
		}
	}
	return all
}

// partsOf returns the parts of the layout to which the needed sets belong.
func partsOf(f ip, need map[string]bool) (h parts) {
	h.classes = make(map[index]uint32)
	for _, p := range indexes(f) {
		if need[p.of("frontends")] {
			h.classes[p] = least
		}
		for _, n := range classes(Ceiling) {
			if need[p.of(ofClass(n))] {
				h.classes[p] = max(least, n)
			}
		}
	}
	for set := range need {
		if t, is := timeoutOf(set); is {
			h.timeouts = append(h.timeouts, t)
		}
	}
	slices.SortFunc(h.timeouts, func(a, b time.Duration) int { return int(a - b) })
	return h
}
