// SPDX-License-Identifier: Apache-2.0

package health

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"github.com/pointsman/pointsman/host/track"
	"github.com/pointsman/pointsman/sdk"
)

// checks serves the healthCheckNodePorts: there a load balancer asks whether this node has
// endpoints for a Service whose traffic must not leave the node.
type checks struct {
	settings Settings
	healthy  func() bool // reports whether changes are applied in time

	open map[uint16]*http.Server // used by run only

	mu     sync.Mutex // guards the fields below
	wanted map[uint16]track.HealthCheck
	failed []string // ports that are not served, and why
}

func newChecks(s Settings, healthy func() bool) *checks {
	return &checks{settings: s, healthy: healthy, open: make(map[uint16]*http.Server)}
}

// run serves until ctx ends. Every bindInterval it retries ports that could not be bound.
func (c *checks) run(ctx context.Context) {
	tick := time.NewTicker(bindInterval)
	defer tick.Stop()
	for {
		c.reconcile(c.settings.Tracker.HealthChecks())
		select {
		case <-c.settings.Tracker.HealthChecked():
		case <-tick.C:
		case <-ctx.Done():
			c.reconcile(nil)
			return
		}
	}
}

// reconcile opens and closes ports so that exactly wanted is served.
func (c *checks) reconcile(wanted []track.HealthCheck) {
	byPort := make(map[uint16]track.HealthCheck, len(wanted))
	for _, w := range wanted {
		byPort[w.Port] = w
	}
	c.mu.Lock()
	c.wanted = byPort
	c.mu.Unlock()
	for port, server := range c.open {
		if _, is := byPort[port]; !is {
			server.Close()
			delete(c.open, port)
		}
	}
	var failed []string
	for _, w := range wanted {
		if c.open[w.Port] != nil {
			continue
		}
		l, err := net.Listen("tcp", fmt.Sprintf(":%d", w.Port))
		if err != nil {
			failed = append(failed, fmt.Sprintf("healthCheckNodePort %d of %s: %v", w.Port, w.Key, err))
			c.settings.Report(track.Notice{Warning: true, Reason: CheckNotServed, Object: w.Key.String(), Message: fmt.Sprintf(
				"healthCheckNodePort %d is not answered, so load balancers leave this node out: %v; it is tried again each %s", w.Port, err, bindInterval)})
			continue
		}
		c.open[w.Port] = newHTTPServer(http.HandlerFunc(c.answer), c.settings.Log)
		go c.open[w.Port].Serve(limitConns(nodePort{l, c})) // ends when the server is closed
	}
	c.mu.Lock()
	c.failed = failed
	c.mu.Unlock()
}

// A nodePort listens at all addresses, and resets connections to those that accept no node ports or
// are of a family in which the Service has no port.
type nodePort struct {
	net.Listener
	checks *checks
}

func (l nodePort) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		check, addr := l.checks.at(conn.LocalAddr())
		if check.Ports.Of(sdk.FamilyOf(addr)) > 0 && l.checks.settings.Tracker.Node().TakesNodePorts(addr) {
			return conn, nil
		}
		_ = conn.(*net.TCPConn).SetLinger(0)
		conn.Close()
	}
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

// counts returns how many ports are served, and how many failed.
func (c *checks) counts() (open, failed int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.wanted) - len(c.failed), len(c.failed)
}

// unbound returns the ports that are not served, and why.
func (c *checks) unbound() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failed // the slice is replaced, never modified
}
