// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/pointsman/pointsman/plugins/internal/hooks"
	"github.com/pointsman/pointsman/plugins/userspace/relay"
	"github.com/pointsman/pointsman/sdk"
)

// This file says what a caller of the relay comes to, given what becomes of what the relay sends to each endpoint.
// An endpoint that cannot be reached is left for another, which the caller does not notice. A caller of TCP that
// none is left for is reset, a datagram is lost.

// A try is an endpoint, and what becomes of what the relay sends there.
type try struct {
	endpoint netip.AddrPort
	ends     []hooks.End
}

// reached is the share of what arrives.
func (t try) reached() float64 {
	return t.share(func(e hooks.End) bool { return e.Verdict == sdk.Forward })
}

// again is the share after which another endpoint is tried. A connection that is not accepted is tried elsewhere,
// and so is a datagram that cannot be sent; one that is lost on its way, or for which no socket can be connected, is not.
func (t try) again(protocol sdk.Protocol) float64 {
	return t.share(func(e hooks.End) bool {
		return e.Verdict != sdk.Forward && (protocol == sdk.TCP || e.Stopped)
	})
}

func (t try) share(which func(hooks.End) bool) (sum float64) {
	for _, e := range t.ends {
		if which(e) {
			sum += e.Share
		}
	}
	return sum
}

// why is what keeps the relay from the endpoint.
func (t try) why() []string {
	for _, e := range t.ends {
		if e.Verdict != sdk.Forward {
			return e.Rules
		}
	}
	return nil
}

// An outcome is what one client of a Service comes to.
type outcome struct {
	service  sdk.Name
	seen     relay.Foreseen
	tries    []try
	protocol sdk.Protocol
}

// shares are how likely each endpoint is the one that is reached, and how likely none is. Which other
// endpoints are tried depends on what else is carried, so that each is as likely.
func (o outcome) shares() (each []float64, none float64) {
	n := len(o.tries)
	each = make([]float64, n)
	first := make([]float64, n) // that it is tried first
	for i, t := range o.tries {
		first[i] = 1 / float64(n)
		if o.seen.Kept.IsValid() {
			first[i] = 0
			if t.endpoint == o.seen.Kept {
				first[i] = 1
			}
		}
	}
	for i, t := range o.tries {
		each[i] = first[i] * t.reached()
	}
	if o.protocol == sdk.UDP {
		return each, o.second(each, first)
	}
	return each, o.others(each, first)
}

// second adds the one other attempt of UDP, and returns what is lost.
func (o outcome) second(each, first []float64) float64 {
	n, left, all := len(o.tries), 0.0, 0.0
	for i, t := range o.tries {
		left += first[i] * t.again(o.protocol)
	}
	for i, t := range o.tries {
		if n == 1 {
			each[i] += left * t.reached()
		} else {
			each[i] += (left - first[i]*t.again(o.protocol)) * t.reached() / float64(n-1)
		}
		all += each[i]
	}
	if all > 1-rounding {
		return 0
	}
	return 1 - all
}

// others divides what is left after the first attempt of TCP, and returns what is reset: there are so many attempts,
// at different endpoints as long as there are any.
func (o outcome) others(each, first []float64) (none float64) {
	n, bad, fail, left := len(o.tries), 0, 0.0, 0.0
	for i, t := range o.tries {
		if q := t.again(o.protocol); q > 0 {
			bad++
			fail += q
			left += first[i] * q
		}
	}
	if bad == 0 || left == 0 {
		return 0
	}
	fail /= float64(bad)
	none = left
	for i := 1; i < o.seen.Attempts; i++ {
		if i < n {
			none *= float64(max(bad-i, 0)) / float64(n-i)
		}
		none *= fail
	}
	sum := 0.0
	for _, t := range o.tries {
		sum += t.reached()
	}
	if sum == 0 {
		return left
	}
	for i, t := range o.tries {
		each[i] += (left - none) * t.reached() / sum
	}
	return none
}

// rounding is by how much shares may differ from 1.
const rounding = 1e-9

// named is how many endpoints that cannot be reached a way names.
const named = 3

// ways are those of an end of the caller's packet that the relay takes.
func (o outcome) ways(from hooks.End, at string) (all []sdk.Way) {
	each, none := o.shares()
	says := []string{fmt.Sprintf("the relay, %s: one of %d endpoints of %s", at, len(o.tries), o.service)}
	if kept := o.seen.Kept; kept.IsValid() {
		says[0] += fmt.Sprintf("; its client keeps %s", kept)
	}
	says = append(says, o.missed()...)
	for i, t := range o.tries {
		reached := t.reached()
		for _, e := range t.ends {
			if e.Verdict == sdk.Forward && each[i] > 0 {
				all = append(all, sdk.Way{
					Verdict: sdk.Forward, To: e.To, Share: from.Share * each[i] * e.Share / reached, Masquerade: true,
					Rules: slices.Concat(from.Rules, says, e.Rules),
				})
			}
		}
	}
	if none > 0 {
		all = append(all, o.turnedAway(from, at, none))
	}
	return all
}

// missed names endpoints that cannot be reached, where others can.
func (o outcome) missed() (all []string) {
	more := 0
	for _, t := range o.tries {
		why := t.why()
		switch {
		case t.reached() == 1:
		case len(all) == named:
			more++
		default:
			text := fmt.Sprintf("the relay: %s is not reached", t.endpoint)
			if len(why) > 0 {
				text += ", by " + why[len(why)-1]
			}
			all = append(all, text)
		}
	}
	if more > 0 {
		all = append(all, fmt.Sprintf("the relay: %d more are not reached", more))
	}
	return all
}

// turnedAway is the way of a caller for which no endpoint is reached. What keeps the relay from one stands last.
func (o outcome) turnedAway(from hooks.End, at string, share float64) sdk.Way {
	w := sdk.Way{Verdict: sdk.Reject, To: from.To, Share: from.Share * share}
	text := "the relay, " + at + ": no endpoint of " + o.service.String() + " is reached, so that the caller is reset"
	if o.protocol == sdk.UDP {
		w.Verdict = sdk.Drop
		text = "the relay, " + at + ": an endpoint of " + o.service.String() + " is not reached, and the datagram is lost"
	}
	w.Rules = append(slices.Clip(from.Rules), text)
	for _, t := range o.tries {
		if why := t.why(); len(why) > 0 {
			w.Rules = append(w.Rules, fmt.Sprintf("the relay: to %s", t.endpoint))
			w.Rules = append(w.Rules, why...)
			break
		}
	}
	return w
}

// withRules is how many ways say which rules decided.
const withRules = 16

// merged has the ways that end in the same way as one, in order.
func merged(ways []sdk.Way) sdk.Traced {
	type end struct {
		verdict    sdk.Verdict
		to         netip.AddrPort
		masquerade bool
	}
	at := make(map[end]int)
	var all []sdk.Way
	for _, w := range ways {
		e := end{w.Verdict, w.To, w.Masquerade}
		if i, known := at[e]; known {
			all[i].Share += w.Share
			continue
		}
		at[e] = len(all)
		if all = append(all, w); len(all) > withRules {
			all[len(all)-1].Rules = nil
		}
	}
	slices.SortStableFunc(all, func(a, b sdk.Way) int { return a.To.Compare(b.To) })
	return sdk.Traced{Ways: all}
}
