// SPDX-License-Identifier: Apache-2.0

package quarantine

import "github.com/pointsman/pointsman/sdk"

// A bisection looks for the Services that a plugin crashes on, among those that it was
// updated with when it crashed. It is a value: next says which to try on an instance that
// serves nothing, tried notes the outcome. With k culprits among n it takes about
// k·log n trials.
type bisection struct {
	groups   [][]sdk.Name // still to be tried; the first is next
	culprits []sdk.Name
}

// bisect begins a bisection of names.
func bisect(names []sdk.Name) bisection { return bisection{groups: halves(names)} }

// next returns the Services to try together; nil: the bisection is over.
func (b bisection) next() []sdk.Name {
	if len(b.groups) == 0 {
		return nil
	}
	return b.groups[0]
}

// tried returns the bisection after those of next were tried.
func (b bisection) tried(crashed bool) bisection {
	group, rest := b.groups[0], b.groups[1:]
	switch {
	case !crashed:
		b.groups = rest
	case len(group) == 1:
		b.groups, b.culprits = rest, append(b.culprits[:len(b.culprits):len(b.culprits)], group[0])
	default:
		b.groups = append(halves(group), rest...)
	}
	return b
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
