// SPDX-License-Identifier: Apache-2.0

package health

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
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

	open map[binding]*http.Server // used by run only

	mu     sync.Mutex // guards the fields below
	wanted map[track.Key]track.HealthCheck
	failed []string // ports that are not served, and why
}

// A binding is one address on which the port of a Service is served.
type binding struct {
	service track.Key
	at      netip.AddrPort
}

func newChecks(s Settings, healthy func() bool) *checks {
	return &checks{settings: s, healthy: healthy, open: make(map[binding]*http.Server)}
}

// run serves until ctx ends. Every bindInterval it also checks for new and removed addresses, and
// retries addresses that could not be bound.
func (c *checks) run(ctx context.Context) {
	tracker := c.settings.Tracker
	tick := time.NewTicker(bindInterval)
	defer tick.Stop()
	for {
		c.reconcile(tracker.HealthChecks(), listenAddrs(tracker.Node(), c.settings.Addrs()))
		select {
		case <-tracker.HealthChecked():
		case <-tick.C:
		case <-ctx.Done():
			c.reconcile(nil, nil)
			return
		}
	}
}

// reconcile opens and closes ports so that exactly wanted is served on addrs. It closes ports
// before it opens others, because a port may have moved to another Service.
func (c *checks) reconcile(wanted []track.HealthCheck, addrs []netip.Addr) {
	byKey := make(map[track.Key]track.HealthCheck, len(wanted))
	for _, w := range wanted {
		byKey[w.Key] = w
	}
	c.mu.Lock()
	c.wanted = byKey
	c.mu.Unlock()
	c.closeExcept(func(b binding) bool { return slices.Contains(bindings(byKey[b.service], addrs), b) })
	var failed []string
	for _, w := range wanted {
		if err := c.serve(w, addrs); err != nil {
			failed = append(failed, fmt.Sprintf("healthCheckNodePort %d of %s: %v", w.Port, w.Key, err))
			c.settings.Report(track.Notice{Warning: true, Reason: CheckNotServed, Object: w.Key.String(), Message: fmt.Sprintf(
				"healthCheckNodePort %d is not answered, so load balancers leave this node out: %v; it is tried again each %s", w.Port, err, bindInterval)})
		}
	}
	c.mu.Lock()
	c.failed = failed
	c.mu.Unlock()
}

// bindings returns where w is served: at those addrs whose family the Service is in.
func bindings(w track.HealthCheck, addrs []netip.Addr) (list []binding) {
	for _, a := range addrs {
		if w.Ports.Of(sdk.FamilyOf(a)) > 0 {
			list = append(list, binding{w.Key, netip.AddrPortFrom(a, w.Port)})
		}
	}
	return list
}

// serve serves w. If one of its addresses cannot be bound, it serves none: otherwise the answer
// would depend on the address that a load balancer uses.
func (c *checks) serve(w track.HealthCheck, addrs []netip.Addr) error {
	for _, b := range bindings(w, addrs) {
		if c.open[b] != nil {
			continue
		}
		server, err := c.listen(b.at, c.handler(w.Key, sdk.FamilyOf(b.at.Addr())))
		if err != nil {
			c.closeExcept(func(b binding) bool { return b.service != w.Key })
			return err
		}
		c.open[b] = server
	}
	return nil
}

// closeExcept closes all servers except those for which keep returns true.
func (c *checks) closeExcept(keep func(binding) bool) {
	for b, server := range c.open {
		if !keep(b) {
			server.Close()
			delete(c.open, b)
		}
	}
}

// listen starts a server at addr.
func (c *checks) listen(addr netip.AddrPort, h http.Handler) (*http.Server, error) {
	network := "tcp4"
	if addr.Addr().Is6() {
		network = "tcp6"
	}
	l, err := listen(context.Background(), network, addr.String())
	if err != nil {
		return nil, err
	}
	server := newHTTPServer(h, c.settings.Log)
	go func() { // ends when the server is closed
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			l.Close()
		}
	}()
	return server, nil
}

// handler returns the handler for one Service; it ignores the path. It counts endpoints of one
// family, because a load balancer that asks in a family also sends in that family.
func (c *checks) handler(key track.Key, family sdk.Family) http.Handler {
	type service struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	}
	type body struct {
		Service             service `json:"service"`
		LocalEndpoints      int     `json:"localEndpoints"`
		ServiceProxyHealthy bool    `json:"serviceProxyHealthy"`
	}
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		c.mu.Lock()
		ready := c.wanted[key].Ready.Of(family)
		c.mu.Unlock()
		healthy := c.healthy()
		code := http.StatusOK
		if ready == 0 || !healthy {
			code = http.StatusServiceUnavailable
		}
		w.Header().Set("X-Load-Balancing-Endpoint-Weight", strconv.Itoa(ready))
		text, err := json.MarshalIndent(body{service{key.Namespace, key.Name}, ready, healthy}, "", "\t") // same format as kube-proxy
		write(w, code, text, err)
	})
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

// An Addr is an address of this machine.
type Addr struct {
	IP     netip.Addr
	Device string
}

// dataplaneDevice is the prefix of devices that dataplanes create for addresses of Services. These addresses are not
// addresses of the node.
const dataplaneDevice = "kube-ipvs"

func machineAddrs() []Addr {
	devices, err := net.Interfaces()
	if err != nil {
		return nil
	}
	var all []Addr
	for _, d := range devices {
		list, err := d.Addrs()
		if err != nil {
			continue // the device was removed
		}
		for _, a := range list {
			if p, err := netip.ParsePrefix(a.String()); err == nil {
				all = append(all, Addr{p.Addr().Unmap(), d.Name})
			}
		}
	}
	return all
}

// listenAddrs returns the addresses on which to serve node ports: the wildcard of a family if
// all its addresses accept node ports, otherwise the single addresses that do.
func listenAddrs(node sdk.Node, machine []Addr) []netip.Addr {
	var list []netip.Addr
	for _, every := range []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
		all := slices.ContainsFunc(node.NodePorts, func(p netip.Prefix) bool { return p.Bits() == 0 && p.Addr().Is4() == every.Is4() })
		if all && (every.Is4() || slices.ContainsFunc(machine, func(a Addr) bool { return a.IP.Is6() })) {
			list = append(list, every)
		}
	}
	for _, a := range machine {
		covered := slices.ContainsFunc(list, func(every netip.Addr) bool { return every.IsUnspecified() && every.Is4() == a.IP.Is4() })
		usable := !(a.IP.Is6() && a.IP.IsLinkLocalUnicast()) && !strings.HasPrefix(a.Device, dataplaneDevice)
		if !covered && usable && node.TakesNodePorts(a.IP) && !slices.Contains(list, a.IP) {
			list = append(list, a.IP)
		}
	}
	slices.SortFunc(list, netip.Addr.Compare)
	return list
}
