// SPDX-License-Identifier: Apache-2.0

package health

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"

	"github.com/pointsman/pointsman/host/track"
	"github.com/pointsman/pointsman/sdk"
)

// checkBindings returns the healthCheckNodePorts to listen on: there a load balancer asks whether
// this node has endpoints for a Service whose traffic must not leave the node.
func (s *Server) checkBindings() (list []binding) {
	checks := make(map[uint16]track.HealthCheck)
	for _, c := range s.settings.Tracker.HealthChecks() {
		checks[c.Port] = c
		list = append(list, binding{
			addr: fmt.Sprintf(":%d", c.Port), what: fmt.Sprintf("healthCheckNodePort %d of %s", c.Port, c.Key),
			reason: CheckNotServed, object: c.Key.String(), handler: http.HandlerFunc(s.answerCheck), accepts: s.acceptsCheck,
		})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checks = checks
	return list
}

// acceptsCheck reports whether a local address accepts node ports, and is of a family in which the
// Service has a port.
func (s *Server) acceptsCheck(local net.Addr) bool {
	check, addr := s.checkAt(local)
	return check.Ports.Of(sdk.FamilyOf(addr)) > 0 && s.settings.Tracker.Node().TakesNodePorts(addr)
}

// checkAt returns the check that is served at the local address of a connection, and that address.
func (s *Server) checkAt(local net.Addr) (track.HealthCheck, netip.Addr) {
	to := local.(*net.TCPAddr).AddrPort()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.checks[to.Port()], to.Addr().Unmap().WithZone("")
}

// answerCheck answers a request; it ignores the path. It counts endpoints of one family, because a load
// balancer that asks in a family also sends in that family.
func (s *Server) answerCheck(w http.ResponseWriter, r *http.Request) {
	type service struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	}
	type body struct {
		Service             service `json:"service"`
		LocalEndpoints      int     `json:"localEndpoints"`
		ServiceProxyHealthy bool    `json:"serviceProxyHealthy"`
	}
	check, addr := s.checkAt(r.Context().Value(http.LocalAddrContextKey).(net.Addr))
	ready, healthy := check.Ready.Of(sdk.FamilyOf(addr)), s.assessed().Healthy
	code := http.StatusOK
	if ready == 0 || !healthy {
		code = http.StatusServiceUnavailable
	}
	w.Header().Set("X-Load-Balancing-Endpoint-Weight", strconv.Itoa(ready))
	text, err := json.MarshalIndent(body{service{check.Namespace, check.Name}, ready, healthy}, "", "\t") // same format as kube-proxy
	write(w, code, text, err)
}
