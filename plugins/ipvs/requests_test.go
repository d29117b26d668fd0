// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"errors"
	"io/fs"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// Adding an endpoint takes one request for each virtual server, one more if the endpoint may be a client of its own
// Service, and no read of the kernel, regardless of the number of Services.
func TestOneEndpointIsOneRequestPerServer(t *testing.T) {
	for _, n := range []int{10, 1000} {
		l := newInstance(t)
		s := many(n)
		if err := l.full(s); err != nil {
			t.Fatal(err)
		}
		l.role(sdk.Active)
		l.fake.counted()
		svc := s.Services[n/2]
		svc.Cluster = append(slices.Clone(svc.Cluster), sdk.Endpoint{Addr: endpoint(n/2, 3), OnNode: true})
		const servers = 2 // at the ClusterIP and at the node's address
		// The monitor also reads the kernel from time to time, so several tries may be needed.
		unasked := false
		for try := 0; try < 20 && !unasked; try++ {
			asked := l.fake.asked()
			l.sync(sdk.Update{Set: []sdk.Service{svc}})
			if got := l.fake.counted(); len(got) != servers+1 {
				t.Fatalf("with %d Services, adding one endpoint sent the requests\n%s", n, strings.Join(got, "\n"))
			}
			without := svc
			without.Cluster = svc.Cluster[:len(svc.Cluster)-1]
			l.sync(sdk.Update{Set: []sdk.Service{without}})
			if got := l.fake.counted(); len(got) != servers+1 {
				t.Fatalf("with %d Services, removing one endpoint sent the requests\n%s", n, strings.Join(got, "\n"))
			}
			unasked = l.fake.asked() == asked
		}
		if !unasked {
			t.Errorf("with %d Services, each change of one endpoint read the kernel", n)
		}
	}
}

// A restarted process that receives the same state writes nothing: in any role, with drained endpoints, virtual servers
// by mark and health-check ports.
func TestRestartWritesNothing(t *testing.T) {
	for _, role := range []sdk.Role{sdk.Active, sdk.Draining, sdk.Standby} {
		l := newInstance(t)
		s := needMarks(60)
		for i := range s.Services {
			s.Services[i].HealthPort = uint16(30000 + i)
			s.Services[i].Frontends = append(s.Services[i].Frontends, many(60).Services[i].Frontends[1])
			s.Services[i].Cluster[0].OnNode = true
		}
		if err := l.full(s); err != nil {
			t.Fatal(err)
		}
		l.role(sdk.Active)
		for i := range s.Services[:30] {
			svc := &s.Services[i]
			leaves := svc.Cluster[1].Addr
			svc.Cluster = svc.Cluster[:1]
			for _, f := range svc.Frontends[:2] {
				l.fake.open(serviceKey{family: sdk.IPv4, protocol: sdk.TCP, addr: f.Addr}, leaves, 1)
			}
		}
		l.sync(sdk.Update{Set: s.Services[:30]})
		l.role(role)
		l.reap() // remove drained endpoints without connections
		l.restart()
		l.fake.counted()
		if err := l.full(s); err != nil {
			t.Fatal(err)
		}
		l.role(role)
		l.reap()
		if got := l.fake.counted(); len(got) > 0 {
			t.Errorf("%s: the restarted process sent the requests\n%s", role, strings.Join(got, "\n"))
		}
		for range 2 {
			var steps []string
			l.exclusively(func() {
				for _, f := range l.plugin.session.families {
					if _, err := f.Adopt(l.Context(), inObjects|inRules); err != nil {
						t.Fatal(err)
					}
					plan := f.Plan()
					if _, err := plan.Apply(l.Context()); err != nil {
						t.Fatal(err)
					}
					steps = append(steps, plan.Steps()...)
				}
			})
			if len(steps) > 0 {
				t.Errorf("%s: adopting again plans the steps %q", role, steps)
			}
		}
	}
}

// As soon as an address is bound, the node can use it as a source and be called at it. So the masquerade and guard
// rules must exist before.
func TestRulesExistBeforeTheFirstAddress(t *testing.T) {
	l := newInstance(t)
	if err := l.full(many(1)); err != nil {
		t.Fatal(err)
	}
	l.role(sdk.Active)
	requests := l.fake.counted()
	bound := slices.IndexFunc(requests, func(r string) bool { return strings.HasPrefix(r, "bind ") })
	if bound < 0 {
		t.Fatal("no address was bound")
	}
	for _, first := range []string{"-I INPUT ", "-I POSTROUTING ", "-A " + guard, "-A " + postrouting, "add -exist " + bindSet} {
		if i := slices.IndexFunc(requests, func(r string) bool { return strings.Contains(r, first) }); i < 0 || i > bound {
			t.Errorf("%q is request %d, and the first address is bound by request %d", first, i, bound)
		}
	}
}

const bindSet = "PM-IPVS-IPS 172.30.0.0"

// A removed endpoint keeps its connections, also when the process restarts while it is drained. It is deleted after its
// last connection has ended.
func TestDrainingOutlivesARestart(t *testing.T) {
	l := newInstance(t)
	s := many(1)
	if err := l.full(s); err != nil {
		t.Fatal(err)
	}
	l.role(sdk.Active)
	at := serviceKey{family: sdk.IPv4, protocol: sdk.TCP, addr: netip.MustParseAddrPort("172.30.0.0:80")}
	leaves := s.Services[0].Cluster[0].Addr
	l.fake.open(at, leaves, 1)
	s.Services[0].Cluster = s.Services[0].Cluster[1:]
	l.sync(sdk.Update{Set: s.Services})
	l.checkWeight(at, leaves, 0)
	l.reap()
	l.checkWeight(at, leaves, 0)

	l.restart()
	if err := l.full(s); err != nil {
		t.Fatal(err)
	}
	l.reap()
	l.checkWeight(at, leaves, 0)
	l.fake.open(at, leaves, -1)
	l.reap()
	l.checkWeight(at, leaves, -1)
}

// checkWeight checks the weight of a destination. -1 means that the destination does not exist.
func (l *instance) checkWeight(at serviceKey, dest netip.AddrPort, want int) {
	l.Helper()
	loads, _, err := l.fake.Loads(at)
	if err != nil {
		l.Fatal(err)
	}
	got := -1
	if load, there := loads[dest]; there {
		got = load.Weight
	}
	if got != want {
		l.Errorf("%s of %s has weight %d, not %d", dest, at, got, want)
	}
}

// An endpoint that is added again while it is drained gets its weight back.
func TestEndpointAddedAgainIsNotDrained(t *testing.T) {
	l := newInstance(t)
	s := many(1)
	if err := l.full(s); err != nil {
		t.Fatal(err)
	}
	l.role(sdk.Active)
	at := serviceKey{family: sdk.IPv4, protocol: sdk.TCP, addr: netip.MustParseAddrPort("172.30.0.0:80")}
	svc := s.Services[0]
	l.fake.open(at, svc.Cluster[0].Addr, 1)
	less := svc
	less.Cluster = svc.Cluster[1:]
	l.sync(sdk.Update{Set: []sdk.Service{less}})
	l.sync(sdk.Update{Set: []sdk.Service{svc}})
	l.checkWeight(at, svc.Cluster[0].Addr, 1)
}

// If the kernel cannot load the scheduler of a virtual server, only that Service is refused, with a hint. After the
// scheduler has been loaded, the next try succeeds.
func TestSchedulerLoadedLater(t *testing.T) {
	l := newInstance(t)
	s := many(3)
	if err := l.full(s); err != nil {
		t.Fatal(err)
	}
	l.role(sdk.Active)
	l.fake.refuse = func(r string) error {
		if strings.HasPrefix(r, "server ") && strings.HasSuffix(r, ", sticky for 60s") {
			return syscall.ENOENT
		}
		return nil
	}
	wants := s.Services[1]
	wants.Affinity = time.Minute
	result, err := l.plugin.Sync(t.Context(), sdk.Update{From: l.revision, To: l.revision + 1, Set: []sdk.Service{wants}})
	refusal := new(sdk.Refusal)
	if err != nil || len(result.Failed) != 1 || !errors.As(result.Failed[0].Err, &refusal) || refusal.Try != "modprobe ip_vs_rr" {
		t.Fatalf("want a failure with a command to run: %+v, %v", result, err)
	}
	l.revision++
	at := serviceKey{family: sdk.IPv4, protocol: sdk.TCP, addr: wants.Frontends[0].Addr}
	if l.fake.services[at].scheduling.affinity != 0 || len(l.fake.services[at].serving()) != 2 {
		t.Errorf("meanwhile %s is %+v, want its previous state", at, l.fake.services[at])
	}
	l.fake.refuse = nil
	l.sync(sdk.Update{Set: []sdk.Service{wants}})
	if l.fake.services[at].scheduling.affinity != 60 {
		t.Errorf("after the scheduler was loaded, %s is scheduled by %s", at, l.fake.services[at].scheduling)
	}
}

// Without the permission to change the kernel, Configure returns a Refusal and not an error that the host would retry.
func TestWithoutPermission(t *testing.T) {
	f := newFake(t)
	m := f.edges()
	m.open = func(bool) (kernel, error) { return kernel{denying{f}, f, fakeLinks{f}}, nil }
	_, err := newPlugin(t.TempDir(), m).Configure(t.Context(), sdk.Setup{})
	if refusal := new(sdk.Refusal); !errors.As(err, &refusal) || !strings.Contains(refusal.Try, "NET_ADMIN") {
		t.Errorf("Configure returned %v", err)
	}
}

// A denying kernel answers the first read with fs.ErrPermission.
type denying struct{ *fake }

func (denying) Timeouts() (timeouts, error) { return timeouts{}, fs.ErrPermission }

// Virtual servers of other programs stay unchanged, also in the ranges that are excluded.
func TestForeignServersStay(t *testing.T) {
	l := newInstance(t)
	foreign := serviceKey{family: sdk.IPv4, protocol: sdk.TCP, addr: netip.MustParseAddrPort("203.0.113.9:443")}
	dest := netip.MustParseAddrPort("10.9.9.9:443")
	if err := errors.Join(l.fake.SetService(foreign, scheduling{scheduler: "wlc"}), l.fake.AddDest(foreign, dest, 7)); err != nil {
		t.Fatal(err)
	}
	if err := l.full(many(2)); err != nil {
		t.Fatal(err)
	}
	l.role(sdk.Active)
	l.restart()
	if err := l.full(many(1)); err != nil {
		t.Fatal(err)
	}
	for _, then := range []func(){func() {}, func() {
		if _, err := l.plugin.Cleanup(t.Context(), sdk.Leftovers{KubeProxy: true}); err != nil {
			t.Error(err)
		}
	}} {
		then()
		l.checkWeight(foreign, dest, 7)
		if s := l.fake.services[foreign]; s == nil || s.scheduling.scheduler != "wlc" {
			t.Errorf("the foreign virtual server became %+v", s)
		}
	}
	if len(l.fake.services) != 1 {
		t.Errorf("after Cleanup the virtual servers are %v", l.fake.services)
	}
}

// In Standby there is no virtual server at addresses of the node, and Inspect reports what would be served there.
func TestInspectInStandby(t *testing.T) {
	l := newInstance(t)
	s := many(2)
	if err := l.full(s); err != nil {
		t.Fatal(err)
	}
	l.role(sdk.Standby)
	for at := range l.fake.services {
		if l.fake.others[at.addr.Addr()] {
			t.Errorf("Standby has a virtual server at %s", at)
		}
	}
	answer := 0
	err := l.plugin.Inspect(t.Context(), func(s sdk.Served) error {
		answer++
		if len(s.Endpoints) != 2 {
			t.Errorf("%s at %s is reported with the endpoints %v", s.Name, s.Frontend, s.Endpoints)
		}
		return nil
	})
	if err != nil || answer != 4 {
		t.Errorf("Inspect reported %d frontends, want 4; %v", answer, err)
	}
}

// Like kube-proxy, the dataplane serves node ports at the node's own addresses, including those in 169.254.0.0/16. It
// does not serve them at loopback and IPv6 link-local addresses.
func TestAddressesOfNodePorts(t *testing.T) {
	l := newInstance(t)
	s := many(1)
	six := s.Services[0]
	six.Name.Family = sdk.IPv6
	six.Frontends = []sdk.Frontend{{Kind: sdk.NodePort, Policy: sdk.Cluster, Addr: netip.AddrPortFrom(netip.IPv6Unspecified(), 20000)}}
	six.Cluster = []sdk.Endpoint{{Addr: netip.MustParseAddrPort("[fd00:10:180::1]:8080")}}
	s.Services = append(s.Services, six)
	s.Node.NodePorts = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
	clear(l.fake.others)
	for _, a := range []string{"192.0.2.10", "169.254.7.7", "127.0.0.1", "2001:db8::10", "fe80::7", "::1"} {
		l.fake.others[netip.MustParseAddr(a)] = true
	}
	if err := l.full(s); err != nil {
		t.Fatal(err)
	}
	l.role(sdk.Active)
	var at []string
	for v := range l.fake.services {
		if v.addr.Port() == 20000 {
			at = append(at, v.addr.Addr().String())
		}
	}
	slices.Sort(at)
	if want := []string{"169.254.7.7", "192.0.2.10", "2001:db8::10"}; !slices.Equal(at, want) {
		t.Errorf("node ports are served at %q, want %q", at, want)
	}
}
