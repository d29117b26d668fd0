// SPDX-License-Identifier: Apache-2.0

package supervise

import "github.com/pointsman/pointsman/sdk"

// A Hunt looks for the Services that a plugin crashes on, among those that it was
// told of when it died. It is a value: Next says which to try on an instance that
// serves nobody, Told takes in what came of it. With k culprits among n it takes
// about k·log n trials.
type Hunt struct {
	groups [][]sdk.Name // still to be tried; the first is next
	Guilty []sdk.Name
}

// NewHunt begins a hunt among names.
func NewHunt(names []sdk.Name) Hunt { return Hunt{groups: halves(names)} }

// Next are the Services to try together; none: the hunt is over.
func (h Hunt) Next() []sdk.Name {
	if len(h.groups) == 0 {
		return nil
	}
	return h.groups[0]
}

// Told is the hunt after those of Next were tried.
func (h Hunt) Told(died bool) Hunt {
	tried, rest := h.groups[0], h.groups[1:]
	switch {
	case !died:
		h.groups = rest
	case len(tried) == 1:
		h.groups, h.Guilty = rest, append(h.Guilty[:len(h.Guilty):len(h.Guilty)], tried[0])
	default:
		h.groups = append(halves(tried), rest...)
	}
	return h
}

func halves(names []sdk.Name) [][]sdk.Name {
	switch n := len(names); n {
	case 0:
		return nil
	case 1:
		return [][]sdk.Name{names}
	default:
		return [][]sdk.Name{names[:n/2], names[n/2:]}
	}
}
