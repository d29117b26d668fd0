// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"fmt"
	"slices"

	"github.com/pointsman/pointsman/plugins/internal/nftnl"
)

// mostListed is how many elements that come, and that go, are named of one step: a set that was
// flushed may lack thousands.
const mostListed = 20

// Details are the steps and, below each, the elements that come (+) and those that go (-), or
// where the rules of a chain begin to differ.
func (p plan) Details() []string {
	fields := p.fields()
	var all []string
	for _, s := range p.steps() {
		all = append(all, s.text)
		if s.chain != nil {
			all = append(all, "  "+p.family.have.chains[s.chain.name].differs(*s.chain))
		}
		all = append(all, listed("  + ", s.come, fields)...)
		all = append(all, listed("  - ", s.gone, fields)...)
	}
	return all
}

// fields are the sets that there may be, by name.
func (p plan) fields() map[string]nftnl.Set {
	of := p.family.ip
	d := dump{ip: of, sets: make(map[string]map[string]nftnl.Element)}
	for set := range p.family.have.sets {
		d.sets[set] = nil
	}
	all := make(map[string]nftnl.Set)
	for _, s := range slices.Concat(d.layout(), p.shape.sets) {
		all[s.Name] = s
	}
	return all
}

// differs says where the rules of a chain begin to differ from those of c.
func (s seen) differs(c chain) string {
	if !s.raw {
		return "it has other rules"
	}
	same := 0
	for same < min(len(s.read), len(c.rules)) && s.read[same].Is(c.rules[same]) {
		same++
	}
	return fmt.Sprintf("it has %d, which differ from number %d on", len(s.read), same+1)
}

// listed are elements, one a line.
func listed(sign string, elements []element, sets map[string]nftnl.Set) []string {
	var all []string
	for _, e := range elements[:min(len(elements), mostListed)] {
		all = append(all, sign+e.words(sets[e.set]))
	}
	if more := len(elements) - mostListed; more > 0 {
		all = append(all, fmt.Sprintf("%sand %d more elements", sign, more))
	}
	return all
}

// words are an element as nft lists it, behind the name of its set.
func (e element) words(set nftnl.Set) string {
	text := e.set + " " + nftnl.Words(set.Key, e.Key)
	if e.KeyEnd != "" {
		text += " to " + nftnl.Words(set.Key, e.KeyEnd)
	}
	if e.Data != "" {
		text += " : " + nftnl.Words(set.Data, e.Data)
	}
	return text
}
