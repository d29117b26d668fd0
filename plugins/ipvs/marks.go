// SPDX-License-Identifier: Apache-2.0

package ipvs

import "github.com/pointsman/pointsman/sdk"

// Marks of virtual services begin with a tag, so that a rule can tell them from other
// marks. There are two tags: the bit that means "masquerade this" is in one of them
// at most, and a mark must not have it.
const tagMask = 0xff000000

func (n nodeConfig) tag() uint32 {
	const one, other = 0x6e000000, 0x91000000
	if one&n.masquerade() != 0 {
		return other
	}
	return one
}

func (n nodeConfig) masquerade() uint32 { return 1 << (n.node.MasqueradeBit & 31) }

// marks are the marks that Services have. One whose Service needs it no more is free only
// when the kernel has no virtual service of it: a Service that is rendered anew, because what
// was put had only been planned, keeps the mark that its connections have.
type marks struct {
	of       map[sdk.Name]uint32
	owner    map[uint32]sdk.Name
	unneeded map[sdk.Name]bool
	next     uint32
}

func newMarks() marks {
	return marks{of: make(map[sdk.Name]uint32), owner: make(map[uint32]sdk.Name), unneeded: make(map[sdk.Name]bool)}
}

// take is the mark of name, a new one if it has none.
func (m *marks) take(name sdk.Name, n nodeConfig) uint32 {
	if mark, ok := m.of[name]; ok && mark&tagMask == n.tag() && mark&n.masquerade() == 0 {
		return mark
	}
	for {
		m.next = (m.next + 1) &^ tagMask
		mark := n.tag() | m.next
		if _, taken := m.owner[mark]; !taken && m.next != 0 && mark&n.masquerade() == 0 {
			m.keep(name, mark)
			return mark
		}
	}
}

// keep notes that name has mark.
func (m *marks) keep(name sdk.Name, mark uint32) {
	m.release(name)
	m.of[name], m.owner[mark] = mark, name
}

// leave notes that the Service called name needs its mark no more.
func (m *marks) leave(name sdk.Name) {
	if _, has := m.of[name]; has {
		m.unneeded[name] = true
	}
}

// settle frees the marks that are not needed, once the kernel has what it should.
func (m *marks) settle(needed map[sdk.Name]desired) {
	for name := range m.unneeded {
		if needed[name].mark == 0 {
			m.release(name)
		}
	}
	clear(m.unneeded)
}

func (m *marks) release(name sdk.Name) {
	if mark, ok := m.of[name]; ok {
		delete(m.owner, mark)
		delete(m.of, name)
	}
}
