// SPDX-License-Identifier: Apache-2.0

package health

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/pointsman/pointsman/host/track"
	"github.com/pointsman/pointsman/sdk"
)

// checkBindings returns the addresses of the healthCheckNodePorts: there a load balancer asks whether
// this node has endpoints for a Service whose traffic must not leave the node.
func (s *Server) checkBindings() (list []binding) {
	node, all := s.settings.Tracker.Node(), s.settings.Tracker.HealthChecks()
	checks := make(map[uint16]track.HealthCheck, len(all))
	if len(all) > 0 {
		if machine, err := s.machine(); err == nil { // after an error, as when descriptors are used up, nothing is closed
			s.addrs = nodePortAddrs(node, machine)
		}
	}
	for _, c := range all {
		checks[c.Port] = c
		for _, addr := range s.addrs {
			if c.Ports.Of(sdk.FamilyOf(addr)) > 0 {
				list = append(list, binding{
					network: "tcp" + strings.TrimPrefix(sdk.FamilyOf(addr).String(), "ipv"), addr: netip.AddrPortFrom(addr, c.Port).String(), what: fmt.Sprintf("healthCheckNodePort %d of %s", c.Port, c.Key),
					reason: CheckNotServed, object: c.Key.String(), handler: http.HandlerFunc(s.answerCheck),
				})
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checks = checks
	return list
}

// ipvsDevice has addresses of Services in mode ipvs, which are not addresses of the node.
const ipvsDevice = "kube-ipvs0"

// machineAddrs returns the addresses of this machine.
func machineAddrs() (list []netip.Addr, err error) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	ofServices := make(map[string]int) // how often: another device may have the same address
	if device, err := net.InterfaceByName(ipvsDevice); err == nil {
		addrs, err := device.Addrs()
		if err != nil {
			return nil, err
		}
		for _, a := range addrs {
			ofServices[a.String()]++
		}
	}
	for _, a := range all {
		if ofServices[a.String()] > 0 {
			ofServices[a.String()]--
		} else if p, err := netip.ParsePrefix(a.String()); err == nil {
			list = append(list, p.Addr())
		}
	}
	return list, nil
}

// nodePortAddrs returns the addresses of the machine that accept node ports, or the unspecified address of a family
// in which all do. The kernel has no addresses of a family that it lacks.
func nodePortAddrs(node sdk.Node, machine []netip.Addr) (list []netip.Addr) {
	for _, addr := range machine {
		if addr.Is6() && addr.IsLinkLocalUnicast() || !node.TakesNodePorts(addr) {
			continue
		}
		every := netip.IPv4Unspecified()
		if addr.Is6() {
			every = netip.IPv6Unspecified()
		}
		if node.TakesNodePorts(every) { // only a range of the whole family contains it
			addr = every
		}
		if !slices.Contains(list, addr) {
			list = append(list, addr)
		}
	}
	return list
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
