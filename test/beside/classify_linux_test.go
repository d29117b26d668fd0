// SPDX-License-Identifier: Apache-2.0

package beside

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// This file says of a difference whose it is: a proxy's of kube-proxy, in which way; ours
// to mend; or that of a machine too busy to answer in time.

// shape is what kinds of answers there are, whatever gives them.
func (a answer) shape() string {
	var kinds []string
	for _, s := range a.unheard() {
		if strings.Contains(s, " saw ") {
			s = "served"
		}
		if !slices.Contains(kinds, s) {
			kinds = append(kinds, s)
		}
	}
	return strings.Join(kinds, " or ")
}

// instead is what became of a kind of call, in place of what does elsewhere.
func (q question) instead(theirs, ours answer) string {
	client := "others"
	switch {
	case q.from.place == "node":
		client = "the node"
	case strings.HasPrefix(q.from.place, "near"):
		client = "a pod here"
	}
	from, to := theirs.shape(), ours.shape()
	if from == to {
		from, to = "served", "served by others, or seen as another"
	}
	return fmt.Sprintf("%s ▶ %s: %s, not %s", client, q.to.way, to, from)
}

// blame says whose an unexplained difference is: a Service that was seen served is
// called in the same way. A proxy that is late there is late everywhere.
func (c *contest) blame(p *proxy, q question) string {
	for _, to := range c.seen.targets() {
		if to.network != q.to.network {
			continue
		}
		began := time.Now()
		got := p.call(c.Context(), q.from, to, c.again)
		took := time.Since(began).Round(time.Millisecond)
		if took > c.again/4 || !served(answer{got}) {
			return fmt.Sprintf("the machine is too busy to tell: another Service said %q after %s", got, took)
		}
		return fmt.Sprintf("a fault of %s: another Service answered after %s", p, took)
	}
	return "of " + p.String()
}
