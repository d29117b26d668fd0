// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// checkServing checks that the destinations of a virtual server which receive new connections are those in want.
func (l *instance) checkServing(at serviceKey, want ...netip.AddrPort) {
	l.Helper()
	l.fake.mu.Lock()
	defer l.fake.mu.Unlock()
	if s := l.fake.services[at]; s == nil || !slices.Equal(s.serving(), want) {
		l.Errorf("%s is %+v, want the destinations %v", at, s, want)
	}
}

// A Service that names an address of the node takes precedence there over the node port of another Service with the
// same port number, whichever of the two is added or removed first.
func TestNamedAddressTakesPrecedence(t *testing.T) {
	s := many(2)
	node := netip.AddrPortFrom(s.Node.Addrs[0], 20000)
	l := start(t, s)
	at := serviceKey{family: sdk.IPv4, protocol: sdk.TCP, addr: node}
	l.checkServing(at, endpoint(0, 1), endpoint(0, 2))
	l.fake.open(at, endpoint(0, 1), 1)
	names := s.Services[1]
	names.Frontends = append(slices.Clone(names.Frontends), sdk.Frontend{Kind: sdk.ExternalIP, Policy: sdk.Cluster, Addr: node})
	for range 2 {
		l.sync(sdk.Update{Set: []sdk.Service{names}})
		l.checkServing(at, endpoint(1, 1), endpoint(1, 2))
		l.checkWeight(at, endpoint(0, 1), 0) // a destination with a connection
		l.sync(sdk.Update{Set: s.Services[:1]})
		l.checkServing(at, endpoint(1, 1), endpoint(1, 2))
		l.restart()
		l.fake.counted()
		s.Services[1] = names
		l.full(s)
		l.role(sdk.Active)
		if wrote := l.fake.counted(); len(wrote) > 0 {
			t.Errorf("a restart wrote %q", wrote)
		}
		l.sync(sdk.Update{Delete: []sdk.Name{names.Name}})
		l.checkServing(at, endpoint(0, 1), endpoint(0, 2))
	}
	l.sync(sdk.Update{Set: []sdk.Service{names}, Delete: []sdk.Name{s.Services[0].Name}})
	l.checkServing(at, endpoint(1, 1), endpoint(1, 2))
	l.sync(sdk.Update{Set: s.Services[:1], Delete: []sdk.Name{names.Name}})
	l.checkServing(at, endpoint(0, 1), endpoint(0, 2))
}

// A Service that would take precedence at an address but is refused leaves the node port there unchanged.
func TestRefusedServiceTakesNoPrecedence(t *testing.T) {
	s := many(3)
	node := netip.AddrPortFrom(s.Node.Addrs[0], 20000)
	at := serviceKey{family: sdk.IPv4, protocol: sdk.TCP, addr: node}
	l := start(t, s)
	l.fake.open(at, endpoint(0, 1), 1)
	l.fake.refuse = func(r string) error {
		if strings.HasPrefix(r, "server ") && strings.HasSuffix(r, ", sticky for 60s") {
			return syscall.ENOENT
		}
		return nil
	}
	names := s.Services[1]
	names.Affinity = time.Minute
	names.Frontends = append(slices.Clone(names.Frontends), sdk.Frontend{Kind: sdk.ExternalIP, Policy: sdk.Cluster, Addr: node})
	before := l.fake.snapshot()
	if failed, err := l.trySync(sdk.Update{Set: []sdk.Service{names}}); failed[names.Name] == nil {
		t.Errorf("failed: %v, %v", failed, err)
	}
	if after := l.fake.snapshot(); after != before {
		t.Errorf("the kernel has the extra objects\n%s\nand lacks\n%s", lacking(after, before), lacking(before, after))
	}
	if n := l.fake.services[at].conns[endpoint(0, 1)]; n != 1 {
		t.Errorf("%s has %d connections", at, n)
	}
	less := s.Services[0]
	less.Cluster = less.Cluster[1:]
	l.sync(sdk.Update{Set: []sdk.Service{less}})
	l.checkServing(at, endpoint(0, 2))
}

// When a frontend moves to another Service, for example because a port of a Service is renamed, its virtual server
// keeps the destinations that have connections.
func TestConnectionsSurviveARenamedPort(t *testing.T) {
	s := many(1)
	l := start(t, s)
	svc := s.Services[0]
	at := serviceKey{family: sdk.IPv4, protocol: sdk.TCP, addr: svc.Frontends[0].Addr}
	leaves := svc.Cluster[0].Addr
	l.fake.open(at, leaves, 1)
	for _, port := range []string{"http", "web"} {
		before := svc.Name
		svc.Name.Port = port
		svc.Cluster = svc.Cluster[len(svc.Cluster)-1:]
		l.fake.counted()
		l.sync(sdk.Update{Set: []sdk.Service{svc}, Delete: []sdk.Name{before}})
		l.checkWeight(at, leaves, 0)
		for _, r := range l.fake.counted() {
			for _, never := range []string{"server ", "remove ", "unbind "} {
				if strings.HasPrefix(r, never) {
					t.Errorf("renaming the port to %s caused the request %q", port, r)
				}
			}
		}
	}
	l.reap()
	l.checkWeight(at, leaves, 0)
	l.fake.open(at, leaves, -1)
	l.reap()
	l.checkWeight(at, leaves, -1)
}

// If the kernel refuses one endpoint of a Service, the Service keeps its previous state and its connections, also in a
// restarted process. All other Services are served.
func TestRefusedEndpoint(t *testing.T) {
	s := many(40)
	l := start(t, s)
	bad := netip.MustParseAddrPort("10.181.255.255:8080")
	l.fake.refuse = func(r string) error {
		if strings.HasPrefix(r, "real "+bad.String()) {
			return syscall.EINVAL
		}
		return nil
	}
	at := func(i int) serviceKey {
		return serviceKey{family: sdk.IPv4, protocol: sdk.TCP, addr: s.Services[i].Frontends[0].Addr}
	}
	l.fake.open(at(0), endpoint(0, 1), 1)
	for _, restarted := range []bool{false, true} {
		if restarted {
			l.restart()
		}
		offer := many(40)
		for i := range offer.Services {
			svc := &offer.Services[i]
			svc.Cluster[0].Addr = endpoint(i, 3)
			if i == 0 {
				svc.Cluster[0].Addr = bad
				svc.Frontends[0].Addr = netip.MustParseAddrPort("172.30.200.1:80")
			}
		}
		u := sdk.Update{Set: offer.Services}
		if restarted {
			u = offer.Update(0)
		}
		if failed, err := l.trySync(u); len(failed) != 1 || failed[s.Services[0].Name] == nil {
			t.Errorf("failed: %v, %v", failed, err)
		}
		l.checkServing(at(0), endpoint(0, 1), endpoint(0, 2))
		l.checkServing(at(1), endpoint(1, 2), endpoint(1, 3))
		l.fake.mu.Lock()
		if n := l.fake.services[at(0)].conns[endpoint(0, 1)]; n != 1 {
			t.Errorf("the virtual server has %d connections", n)
		}
		if bound := len(l.fake.ours); bound != 40 || l.fake.ours[netip.MustParseAddr("172.30.200.1")] {
			t.Errorf("%d addresses are bound", bound)
		}
		l.fake.mu.Unlock()
	}
}

// Equal source ranges, and ranges that become equal when they are converted to what a set can hold, give one set entry.
func TestSameSources(t *testing.T) {
	l := newInstance(t)
	s := many(1)
	for _, p := range []string{"10.1.2.3/8", "10.9.9.9/8", "0.0.0.0/0", "0.0.0.0/1", "0.0.0.0/0"} {
		s.Services[0].Frontends[1].Sources = append(s.Services[0].Frontends[1].Sources, netip.MustParsePrefix(p))
	}
	l.full(s)
	l.exclusively(func() {
		if why, _ := l.plugin.session.families[0].objects.Foreign(t.Context()); why != "" {
			t.Errorf("Foreign reports a difference right after the write: %s", why)
		}
	})
}

// A Service may name an address of the node with the number of its own node port. Both are then one virtual server,
// also for a process that adopts it.
func TestServiceNamesItsOwnNodePort(t *testing.T) {
	l := newInstance(t)
	s := many(2)
	node := netip.AddrPortFrom(s.Node.Addrs[0], 20000)
	s.Services[0].Frontends = append(s.Services[0].Frontends, sdk.Frontend{Kind: sdk.ExternalIP, Policy: sdk.Cluster, Addr: node})
	for i := range 2 {
		l.full(s)
		l.role(sdk.Active)
		l.checkServing(serviceKey{family: sdk.IPv4, protocol: sdk.TCP, addr: node}, endpoint(0, 1), endpoint(0, 2))
		if wrote := l.fake.counted(); i > 0 && len(wrote) > 0 {
			t.Errorf("the second process wrote %q", wrote)
		}
		l.restart()
	}
}
