// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"encoding/binary"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/nftnl"
	"github.com/pointsman/pointsman/sdk"
)

// A number stands for a Service with affinity: its clients, over all its frontends, are looked
// up by it. A rule puts it into the packet's priority, from which the next rule reads it, as no
// rule may look up what it has looked up. The last rule that needs it sets the priority to
// zero. A packet mark would go with the packet through a tunnel.
type number uint32

// key is the number as packets have it.
func (n number) key() string { return hostOrder(uint32(n)) }

// numberIn reads what key writes, at the start of a longer key.
func numberIn(key string) number {
	if len(key) < 4 {
		return 0
	}
	return number(binary.NativeEndian.Uint32([]byte(key)))
}

// both are the policies of lists, in order.
var both = []sdk.Policy{sdk.Cluster, sdk.Local}

// forList is the name of a set, map or chain that there is once for each policy.
func forList(name string, p sdk.Policy) string {
	if p == sdk.Local {
		return name + "-local"
	}
	return name
}

// ofTimeout is the set of the numbers whose clients are kept for so long.
func ofTimeout(t time.Duration) string { return "timeout-" + strconv.Itoa(int(t.Seconds())) }

// timeoutOf is the way back from ofTimeout.
func timeoutOf(set string) (time.Duration, bool) {
	text, is := strings.CutPrefix(set, "timeout-")
	n, err := strconv.Atoi(text)
	return time.Duration(n) * time.Second, is && err == nil && n > 0
}

const (
	// longestTimeout is the longest that Kubernetes knows. A rule says what is shorter.
	longestTimeout = 24 * time.Hour

	// clients are kept at most so many in a list of a family. The kernel makes room for them when
	// the map is made.
	clients = 1 << 17
)

// kept are the lists of an index at whose endpoints clients may be kept.
func (h parts) kept(p index) []sdk.Policy {
	switch {
	case len(h.timeouts) == 0:
		return nil
	case p.near:
		return both[:1]
	}
	return both
}

// affinitySets are what all Services with affinity share.
func (h parts) affinitySets(f ip) (all []nftnl.Set) {
	if len(h.timeouts) == 0 {
		return nil
	}
	endpoint := []nftnl.Field{f.Addr(), nftnl.Port}
	for _, p := range both {
		all = append(all,
			nftnl.Set{
				Name: forList("sticky", p), Key: []nftnl.Field{nftnl.Priority, f.Addr()}, Data: endpoint,
				Flags: nftnl.Dynamic, Timeout: longestTimeout, Size: clients,
			},
			nftnl.Set{Name: forList("members", p), Key: append([]nftnl.Field{nftnl.Priority}, endpoint...)})
	}
	for _, t := range h.timeouts {
		all = append(all, nftnl.Set{Name: ofTimeout(t), Key: []nftnl.Field{nftnl.Priority}})
	}
	return all
}

// numbered is a rule that puts into the packet the number that a key has in a map, and goes on
// in a chain. Without a number it does nothing.
func numbered(key rule, in, chain string) rule {
	return append(key, nftnl.Find(in, 0, 0), nftnl.SetMeta(nftnl.MetaPriority, 0), to(nftnl.Jump(chain)))
}

// unnumbered takes the number away again.
func unnumbered() rule {
	return rule{nftnl.Load(0, hostOrder(0)), nftnl.SetMeta(nftnl.MetaPriority, 0)}
}

// affinityChains send a client to the endpoint that it keeps, and note which one it has.
func (h parts) affinityChains(f ip) (all []chain) {
	if len(h.timeouts) == 0 {
		return nil
	}
	for _, p := range both {
		all = append(all, chain{Name: forList("keep", p), Rules: []rule{
			{
				nftnl.Meta(nftnl.MetaPriority, 0), f.Saddr(1),
				nftnl.Find(forList("sticky", p), 0, 0), nftnl.DNAT(f.NFT(), 0, f.Words()),
			},
			unnumbered(),
		}})
	}
	return append(all, h.note(f))
}

// note remembers which endpoint a client has, in each list that has the endpoint.
func (h parts) note(f ip) chain {
	const data = 8 // the first register behind the longest key
	w := f.Words()
	c := chain{Name: "note"}
	for _, t := range h.timeouts {
		for _, p := range both {
			c.Rules = append(c.Rules, rule{
				nftnl.Meta(nftnl.MetaPriority, 0), nftnl.In(ofTimeout(t), 0),
				nftnl.Meta(nftnl.MetaPriority, 0), f.Daddr(1), loadPort(1 + w), nftnl.In(forList("members", p), 0),
				nftnl.Meta(nftnl.MetaPriority, 0), f.Saddr(1), f.Daddr(data), loadPort(data + w),
				nftnl.Remember(forList("sticky", p), 0, data, t),
			})
		}
	}
	c.Rules = append(c.Rules, unnumbered())
	return c
}

// remember finds the number of the Service that a connection was made to, for note.
func (n nodeConfig) remember() chain {
	c := chain{Name: "remember"}
	for _, p := range n.indexes(n.ip) {
		sent := []rule{nil}
		if p.ports {
			sent = n.toOwn(n.OrigDaddr(0))
		}
		for _, list := range n.kept(p) {
			if p.near { // its frontends are in the other, too
				continue
			}
			for _, to := range sent {
				keeps := p.of(forList("keeps", list))
				c.Rules = append(c.Rules, numbered(append(slices.Clone(to), p.original()...), keeps, "note"))
			}
		}
	}
	return c
}

// affine adds the elements that w has for its affinity alone.
func (w wanted) affine(add func(string, nftnl.Element)) {
	add(ofTimeout(w.affinity), nftnl.Element{Key: w.number.key()})
	for _, p := range w.policies() {
		for _, ep := range w.lists[p] {
			add(forList("members", p), nftnl.Element{Key: w.number.key() + destination(ep)})
		}
	}
}
