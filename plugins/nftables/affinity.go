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

// A number identifies a Service with affinity. The sets of clients are keyed by it, so that a client has the
// same endpoint at all frontends. A rule puts the number into the packet's priority, and the next rule reads it
// there: a rule cannot use the result of a lookup as a key. The last rule that needs it sets the priority to
// zero. The priority is used and not the mark, because a mark stays on the packet through a tunnel.
type number uint32

// key encodes the number as it is in the packet's priority.
func (n number) key() string { return hostOrder(uint32(n)) }

// parseNumber decodes the number at the start of a key.
func parseNumber(key string) number {
	if len(key) < 4 {
		return 0
	}
	return number(binary.NativeEndian.Uint32([]byte(key)))
}

// both are the policies of lists, in order.
var both = []sdk.Policy{sdk.Cluster, sdk.Local}

// forPolicy returns the name of a set, map or chain that exists once for each policy.
func forPolicy(name string, p sdk.Policy) string {
	if p == sdk.Local {
		return name + "-local"
	}
	return name
}

// timeoutSet returns the name of the set with the numbers of Services that have this affinity timeout.
func timeoutSet(t time.Duration) string { return "timeout-" + strconv.Itoa(int(t.Seconds())) }

// parseTimeoutSet is the inverse of timeoutSet.
func parseTimeoutSet(set string) (time.Duration, bool) {
	text, is := strings.CutPrefix(set, "timeout-")
	n, err := strconv.Atoi(text)
	return time.Duration(n) * time.Second, is && err == nil && n > 0
}

const (
	// longestTimeout is the maximum in Kubernetes, and the timeout of the maps. Rules set shorter ones.
	longestTimeout = 24 * time.Hour

	// maxClients is the maximum number of clients in a list of a family. The kernel allocates the map for them
	// at its creation.
	maxClients = 1 << 17
)

// affinityPolicies returns the policies of an index for which clients may be kept at endpoints.
func (h parts) affinityPolicies(p index) []sdk.Policy {
	switch {
	case len(h.timeouts) == 0:
		return nil
	case p.near:
		return both[:1]
	}
	return both
}

// affinitySets returns the sets that all Services with affinity share.
func (h parts) affinitySets(f ip) (all []nftnl.Set) {
	if len(h.timeouts) == 0 {
		return nil
	}
	endpoint := []nftnl.Field{f.Addr(), nftnl.Port}
	for _, p := range both {
		all = append(all,
			nftnl.Set{
				Name: forPolicy("sticky", p), Key: []nftnl.Field{nftnl.Priority, f.Addr()}, Data: endpoint,
				Flags: nftnl.Dynamic, Timeout: longestTimeout, Size: maxClients,
			},
			nftnl.Set{Name: forPolicy("members", p), Key: append([]nftnl.Field{nftnl.Priority}, endpoint...)})
	}
	for _, t := range h.timeouts {
		all = append(all, nftnl.Set{Name: timeoutSet(t), Key: []nftnl.Field{nftnl.Priority}})
	}
	return all
}

// jumpWithNumber returns a rule that copies the number that in has for a key into the packet's priority and
// jumps to chain. It does nothing if in has no number for the key.
func jumpWithNumber(key rule, in, chain string) rule {
	return append(key, nftnl.Find(in, 0, 0), nftnl.SetMeta(nftnl.MetaPriority, 0), verdict(nftnl.Jump(chain)))
}

// clearNumber returns a rule that sets the packet's priority to zero.
func clearNumber() rule {
	return rule{nftnl.Load(0, hostOrder(0)), nftnl.SetMeta(nftnl.MetaPriority, 0)}
}

// affinityChains returns the chains that translate a packet to the endpoint that its client keeps, and the
// chain that records the endpoint of a client.
func (h parts) affinityChains(f ip) (all []chain) {
	if len(h.timeouts) == 0 {
		return nil
	}
	for _, p := range both {
		all = append(all, chain{Name: forPolicy("keep", p), Rules: []rule{
			{
				nftnl.Meta(nftnl.MetaPriority, 0), f.Saddr(1),
				nftnl.Find(forPolicy("sticky", p), 0, 0), nftnl.DNAT(f.NFT(), 0, f.Words()),
			},
			clearNumber(),
		}})
	}
	return append(all, h.noteChain(f))
}

// noteChain returns the chain that records the endpoint of a client, in each list that has the endpoint.
func (h parts) noteChain(f ip) chain {
	const data = 8 // the first register after the longest key
	w := f.Words()
	c := chain{Name: "note"}
	for _, t := range h.timeouts {
		for _, p := range both {
			c.Rules = append(c.Rules, rule{
				nftnl.Meta(nftnl.MetaPriority, 0), nftnl.In(timeoutSet(t), 0),
				nftnl.Meta(nftnl.MetaPriority, 0), f.Daddr(1), loadPort(1 + w), nftnl.In(forPolicy("members", p), 0),
				nftnl.Meta(nftnl.MetaPriority, 0), f.Saddr(1), f.Daddr(data), loadPort(data + w),
				nftnl.Remember(forPolicy("sticky", p), 0, data, t),
			})
		}
	}
	c.Rules = append(c.Rules, clearNumber())
	return c
}

// rememberChain returns the chain that finds the number of a connection's Service and jumps to note.
func (n nodeConfig) rememberChain() chain {
	c := chain{Name: "remember"}
	for _, p := range n.indexes(n.ip) {
		sent := []rule{nil}
		if p.ports {
			sent = n.matchOwn(n.OrigDaddr(0))
		}
		for _, list := range n.affinityPolicies(p) {
			if p.near { // its frontends are in the far index, too
				continue
			}
			for _, to := range sent {
				keeps := p.name(forPolicy("keeps", list))
				c.Rules = append(c.Rules, jumpWithNumber(append(slices.Clone(to), p.loadOriginalKey()...), keeps, "note"))
			}
		}
	}
	return c
}

// affinityElements adds the elements that w needs only for affinity.
func (w piece) affinityElements(add func(string, nftnl.Element)) {
	add(timeoutSet(w.affinity), nftnl.Element{Key: w.number.key()})
	for _, p := range w.policies() {
		for _, ep := range w.lists[p] {
			add(forPolicy("members", p), nftnl.Element{Key: w.number.key() + destination(ep)})
		}
	}
}
