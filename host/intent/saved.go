// SPDX-License-Identifier: Apache-2.0

package intent

import (
	"slices"

	"github.com/pointsman/pointsman/host/supervise"
	"github.com/pointsman/pointsman/host/swap"
)

// Saved is what the next host must know: what the kernel has decides with which dataplane it
// begins, not what the config file says by then.
type Saved struct {
	Serving string `json:"serving"`         // the mode that serves
	Slot    string `json:"slot,omitempty"`  // of its process
	Asked   string `json:"asked,omitempty"` // by pointsman mode swap; empty: no other than the file's mode was asked for
	File    string `json:"file,omitempty"`  // the mode in the file when that was asked for

	// Left are the modes that do not serve and may have rules in the kernel, because a
	// change ended without cleaning up after them.
	Left []string `json:"left,omitempty"`

	// Swap is the change of mode that is under way; nil: none is.
	Swap *swap.Saved `json:"swap,omitempty"`
}

// named reports whether the modes and the process may be called so: their names lead to
// files.
func (s Saved) named() bool {
	for _, mode := range append([]string{s.Serving, s.Asked, s.File}, s.Left...) {
		if mode != "" && !supervise.ValidName(mode) {
			return false
		}
	}
	return supervise.ValidSlot(s.Slot)
}

func (s Saved) wanted(mode string) string {
	if s.Asked != "" && s.File == mode {
		return s.Asked
	}
	return mode
}

// under returns what is left of it when the file says mode: what was asked for before the file
// changed does not hold again when the file changes back.
func (s Saved) under(mode string) Saved {
	if s.File != mode {
		s.Asked, s.File = "", ""
	}
	return s
}

// Begins returns the process to begin with: the one that the change under way keeps, else the
// one that served before as long as its mode is available, else one of the mode that is
// wanted.
func (i Intent) Begins(available func(mode string) bool) swap.Party {
	if m := i.UnderWay(); m.Stage != swap.Idle {
		keeps, _ := m.Parties()
		return keeps
	}
	if i.Serving != "" && available(i.Serving) {
		return swap.Party{Mode: i.Serving, Slot: i.Slot}
	}
	return swap.Party{Mode: i.Wanted()}
}

// UnderWay returns the change of mode that was under way.
func (s Saved) UnderWay() swap.Machine {
	m, err := s.Swap.Machine()
	if err != nil {
		return swap.Machine{} // only what makes sense is read
	}
	return m
}

// encoded returns s as it is written. While a change is under way the mode that is to leave is
// among Left: a host that does not know Swap then cleans up after it.
func (s Saved) encoded() Saved {
	if leaves := s.leaves(); leaves != "" && !slices.Contains(s.Left, leaves) {
		s.Left = append(slices.Clone(s.Left), leaves)
	}
	return s
}

// decoded returns s as it was before it was encoded.
func (s Saved) decoded() Saved {
	if leaves := s.leaves(); leaves != "" {
		s.Left = without(s.Left, leaves)
	}
	return s
}

// leaves returns the mode that the change under way takes out of the kernel; empty: none.
func (s Saved) leaves() string {
	m := s.UnderWay()
	if m.Stage == swap.Idle || m.Plan.Same {
		return ""
	}
	_, leaves := m.Parties()
	return leaves.Mode
}
