// SPDX-License-Identifier: Apache-2.0

package health

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"

	"github.com/pointsman/pointsman/host/track"
	"github.com/pointsman/pointsman/sdk"
)

// checks answers at the healthCheckNodePorts: there a load balancer asks whether this node has
// endpoints for a Service whose traffic must not leave the node.
type checks struct {
	settings Settings
	healthy  func() bool // reports whether changes are applied in time

	mu     sync.Mutex // guards wanted
	wanted map[uint16]track.HealthCheck
}

// bindings returns the ports to listen on.
func (c *checks) bindings() (list []binding) {
	wanted := make(map[uint16]track.HealthCheck)
	for _, w := range c.settings.Tracker.HealthChecks() {
		wanted[w.Port] = w
		list = append(list, binding{
			addr: fmt.Sprintf(":%d", w.Port), what: fmt.Sprintf("healthCheckNodePort %d of %s", w.Port, w.Key),
			reason: CheckNotServed, object: w.Key.String(), handler: http.HandlerFunc(c.answer), accepts: c.accepts,
		})
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wanted = wanted
	return list
}

// accepts reports whether a local address accepts node ports, and is of a family in which the
// Service has a port.
func (c *checks) accepts(local net.Addr) bool {
	check, addr := c.at(local)
	return check.Ports.Of(sdk.FamilyOf(addr)) > 0 && c.settings.Tracker.Node().TakesNodePorts(addr)
}

// at returns the check that is served at the local address of a connection, and that address.
func (c *checks) at(local net.Addr) (track.HealthCheck, netip.Addr) {
	to := local.(*net.TCPAddr).AddrPort()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wanted[to.Port()], to.Addr().Unmap().WithZone("")
}

// answer answers a request; it ignores the path. It counts endpoints of one family, because a load
// balancer that asks in a family also sends in that family.
func (c *checks) answer(w http.ResponseWriter, r *http.Request) {
	type service struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	}
	type body struct {
		Service             service `json:"service"`
		LocalEndpoints      int     `json:"localEndpoints"`
		ServiceProxyHealthy bool    `json:"serviceProxyHealthy"`
	}
	check, addr := c.at(r.Context().Value(http.LocalAddrContextKey).(net.Addr))
	ready, healthy := check.Ready.Of(sdk.FamilyOf(addr)), c.healthy()
	code := http.StatusOK
	if ready == 0 || !healthy {
		code = http.StatusServiceUnavailable
	}
	w.Header().Set("X-Load-Balancing-Endpoint-Weight", strconv.Itoa(ready))
	text, err := json.MarshalIndent(body{service{check.Namespace, check.Name}, ready, healthy}, "", "\t") // same format as kube-proxy
	write(w, code, text, err)
}
