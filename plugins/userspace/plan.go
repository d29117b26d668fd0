// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"cmp"
	"slices"

	"github.com/pointsman/pointsman/plugins/userspace/relay"
	"github.com/pointsman/pointsman/sdk"
)

// A step is one thing to do to a socket.
type step struct {
	verb  verb
	claim claim // which the place is given to; for closing, only the place is set
}

// A verb is what a step does. They are in the order of a plan: a new Service
// can be reached before any is gone.
type verb uint8

const (
	open      verb = iota + 1 // a socket, which serves nothing yet
	give                      // an open socket to the Service that the claim names
	closeDown                 // a socket that no Service wants
)

var verbs = []string{open: "open", give: "give", closeDown: "close"}

func (s step) String() string {
	text := verbs[s.verb] + " " + s.claim.place.String()
	switch s.verb {
	case open:
		text += " for " + s.claim.name.String()
	case give:
		text += " to " + s.claim.name.String() + " as " + s.claim.frontend.String()
	}
	return text
}

// texts are steps for people.
func texts(steps []step) []string {
	var all []string
	for _, s := range steps {
		all = append(all, s.String())
	}
	return all
}

// A holder is what an open socket serves; one that was only opened has the zero one.
type holder struct {
	name     sdk.Name
	frontend sdk.Frontend
}

// holderOf is what s serves.
func holderOf(s relay.Socket) holder {
	t := s.Target()
	if t == nil {
		return holder{}
	}
	return holder{t.Service.Name(), t.Frontend}
}

func (h holder) holds(c claim) bool { return h.name == c.name && h.frontend.Equal(c.frontend) }

// plan leads from the sockets that are open to those that t wants, at the places
// that a change touched. held is what a socket serves, if there is one.
func plan(touched []place, t *table, held func(place) (holder, bool)) []step {
	var steps []step
	for _, p := range touched {
		h, isOpen := held(p)
		c, owned := t.owner(p)
		wanted := owned && c.listens
		if wanted && !isOpen {
			steps = append(steps, step{open, c})
		}
		if wanted && !h.holds(c) {
			steps = append(steps, step{give, c})
		}
		if !wanted && isOpen {
			steps = append(steps, step{closeDown, claim{place: p}})
		}
	}
	slices.SortFunc(steps, func(a, b step) int {
		return cmp.Or(cmp.Compare(a.verb, b.verb), a.claim.place.compare(b.claim.place))
	})
	return steps
}
