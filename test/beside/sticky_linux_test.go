// SPDX-License-Identifier: Apache-2.0

package beside

import (
	"fmt"
	"strings"
	"time"
)

// followAffinity checks affinity: each caller keeps its endpoint over all frontends of a port and while other endpoints
// are removed, and may get another endpoint after the timeout.
func (c *contest) followAffinity() {
	c.Helper()
	stay := func(ends []end, seconds int32) []thing {
		return []thing{newThing(40, "stay", ends, nodePorts(30400), sticky(seconds))}
	}
	things := stay(spread(), 600)
	c.serve(things)
	before := c.endpointsByClient(things)

	fewer := stay([]end{on("near1", 8080), on("far0", 8080)}, 600)
	c.serve(fewer)
	for who, ep := range c.endpointsByClient(fewer) {
		if was := before[who]; ep != was && !strings.HasPrefix(was, at("near0").addrs[0].String()) && !strings.HasPrefix(was, "["+at("near0").addrs[1].String()) {
			c.Errorf("%s moved from endpoint %s, which still serves, to %s", who, was, ep)
		}
	}

	short := stay(spread(), 1)
	c.serve(short)
	c.each(func(p *proxy) { c.expectMove(p, short[0].targets()[0]) })
}

func (c *contest) serve(things []thing) {
	c.Helper()
	c.write(things)
	c.settle()
}

// endpointsByClient calls all frontends from each caller in every world, and returns the endpoint of each client.
func (c *contest) endpointsByClient(things []thing) map[string]string {
	c.Helper()
	with := make(map[string]string)
	for _, p := range c.proxies {
		for _, from := range []caller{called("near1"), called("client"), called("node")} {
			for _, to := range things[0].targets() {
				if to.way == "loopback-node-port" {
					continue
				}
				for range 3 {
					who := fmt.Sprintf("%s: %s by %s", p, from.name, to.network)
					c.stay(with, who, p.call(c.Context(), from, to, 2*time.Second))
				}
			}
		}
	}
	return with
}

// stay records the endpoint that answered a client, and fails if another endpoint answered before.
func (c *contest) stay(with map[string]string, who, answer string) {
	c.Helper()
	ep, _, ok := strings.Cut(answer, " saw ")
	switch {
	case !ok:
		c.Errorf("%s: %s", who, answer)
	case with[who] == "":
		with[who] = ep
	case with[who] != ep:
		c.Errorf("%s reached endpoint %s, and then %s", who, with[who], ep)
	}
}

// expectMove waits until a caller that pauses for longer than the affinity timeout reaches another endpoint.
func (c *contest) expectMove(p *proxy, to target) {
	first := ""
	for end := time.Now().Add(timeout); time.Now().Before(end); time.Sleep(2100 * time.Millisecond) { // the pause that is tested: an affinity of 2 s must run out
		answer := p.call(c.Context(), called("client"), to, 2*time.Second)
		if first == "" {
			first = answer
		}
		if answer != first {
			return
		}
	}
	c.Errorf("%s: the client always gets %q, although it pauses for longer than the affinity timeout", p, first)
}
