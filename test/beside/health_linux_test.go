// SPDX-License-Identifier: Apache-2.0

package beside

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"time"
)

// compareHealth asks the health ports of things, at all of the node's addresses.
func (c *contest) compareHealth(things []thing) {
	c.Helper()
	for _, t := range things {
		port := uint16(t.service.Spec.HealthCheckNodePort)
		if port == 0 {
			continue
		}
		for family := range secondAddrs {
			for _, addr := range []netip.Addr{at("node").addrs[family], secondAddrs[family], loopbackCaller.addrs[family]} {
				from := called("client")
				if addr.IsLoopback() {
					from = loopbackCaller
				}
				c.compareHealthAt(from, netip.AddrPortFrom(addr, port), t)
			}
		}
	}
}

func (c *contest) compareHealthAt(from caller, to netip.AddrPort, t thing) {
	c.Helper()
	said := make([]string, len(c.proxies))
	c.until(func() bool {
		alike := true
		for i, p := range c.proxies {
			said[i] = p.health(c.Context(), from, to)
			alike = alike && said[i] == said[0]
		}
		return alike
	})
	for i, p := range c.proxies {
		if said[i] != said[0] {
			c.Errorf("%s ▶ %s, the health port of %s:\n\t%s: %s\n\t%s: %s", from.name, to, t.service.Name, c.proxies[0], said[0], p, said[i])
		}
	}
}

// health returns the answer of a health port: the status, the weight, and the body.
func (w *world) health(ctx context.Context, from caller, to netip.AddrPort) string {
	family := 0
	if to.Addr().Is6() {
		family = 1
	}
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return w.hosts[from.place].Dial(ctx, "tcp", from.addrs[family], to)
	}}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+to.String()+"/any/path", nil)
	if err != nil {
		return err.Error()
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return failed(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	var fields map[string]any
	if err == nil {
		err = json.Unmarshal(body, &fields)
	}
	if err != nil {
		return fmt.Sprintf("%s %q", response.Status, body)
	}
	header := response.Header
	return fmt.Sprint(strconv.Itoa(response.StatusCode), " ", header.Get("Content-Type"), " ", header.Get("X-Content-Type-Options"), " ", header.Get("X-Load-Balancing-Endpoint-Weight"), " ", fields)
}
