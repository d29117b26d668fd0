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

	"github.com/pointsman/pointsman/sdk"
)

// One endpoint more is one request to the kernel for each virtual service, one more if
// it may call itself, and no question; however many Services there are.
func TestOneEndpointIsOneRequestPerServer(t *testing.T) {
	for _, n := range []int{10, 1000} {
		l := newLife(t)
		s := many(n)
		if err := l.full(s); err != nil {
			t.Fatal(err)
		}
		l.role(sdk.Active)
		l.fake.counted()
		svc := s.Services[n/2]
		svc.Cluster = append(slices.Clone(svc.Cluster), sdk.Endpoint{Addr: endpoint(n/2, 3), OnNode: true})
		const servers = 2 // at the ClusterIP, and at the node's address
		// What looks after the kernel between the calls asks it too, now and then.
		unasked := false
		for try := 0; try < 20 && !unasked; try++ {
			asked := l.fake.asked()
			l.sync(sdk.Update{Set: []sdk.Service{svc}})
			if got := l.fake.counted(); len(got) != servers+1 {
				t.Fatalf("with %d Services one endpoint came by\n%s", n, strings.Join(got, "\n"))
			}
			without := svc
			without.Cluster = svc.Cluster[:len(svc.Cluster)-1]
			l.sync(sdk.Update{Set: []sdk.Service{without}})
			if got := l.fake.counted(); len(got) != servers+1 {
				t.Fatalf("with %d Services one endpoint went by\n%s", n, strings.Join(got, "\n"))
			}
			unasked = l.fake.asked() == asked
		}
		if !unasked {
			t.Errorf("with %d Services the kernel was asked at each change of one endpoint", n)
		}
	}
}

// A process that starts anew, and hears what is served already, writes nothing: in any role, with endpoints that wait for their last
// connection, virtual servers of marks and health ports.
func TestARestartWritesNothing(t *testing.T) {
	for _, role := range []sdk.Role{sdk.Active, sdk.Draining, sdk.Standby} {
		l := newLife(t)
		s := marked(60)
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
		l.reap() // those that have none
		l.restart()
		l.fake.counted()
		if err := l.full(s); err != nil {
			t.Fatal(err)
		}
		l.role(role)
		l.reap()
		if got := l.fake.counted(); len(got) > 0 {
			t.Errorf("%s: it wrote\n%s", role, strings.Join(got, "\n"))
		}
		for range 2 {
			var steps []string
			l.quiet(func() {
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
				t.Errorf("%s: to read the kernel again leads to the steps %q", role, steps)
			}
		}
	}
}

// From the moment an address is bound the node may call by it, and be called at it. So
// masquerade and guard are there before.
func TestGuardAndMasqueradeComeBeforeTheFirstAddress(t *testing.T) {
	l := newLife(t)
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
			t.Errorf("%q is request %d, and the first address %d", first, i, bound)
		}
	}
}

const bindSet = "PM-IPVS-IPS 172.30.0.0"

// An endpoint that leaves keeps its connections, also when the process that drains it
// is another by then; and goes when it has had the last.
func TestDrainingOutlivesARestart(t *testing.T) {
	l := newLife(t)
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
	l.weighs(at, leaves, 0)
	l.reap()
	l.weighs(at, leaves, 0)

	l.restart()
	if err := l.full(s); err != nil {
		t.Fatal(err)
	}
	l.reap()
	l.weighs(at, leaves, 0)
	l.fake.open(at, leaves, -1)
	l.reap()
	l.weighs(at, leaves, -1)
}

// weighs holds a destination against its weight; -1: it is not there.
func (l *life) weighs(at serviceKey, dest netip.AddrPort, want int) {
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

// An endpoint that comes back while it is drained has its weight again.
func TestWhoComesBackIsNotDrained(t *testing.T) {
	l := newLife(t)
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
	l.weighs(at, svc.Cluster[0].Addr, 1)
}

// A scheduler that the kernel cannot load is a refusal with what would help, of that
// Service alone; once it is loaded the next try goes in.
func TestASchedulerThatIsLoadedLater(t *testing.T) {
	l := newLife(t)
	s := many(3)
	if err := l.full(s); err != nil {
		t.Fatal(err)
	}
	l.role(sdk.Active)
	l.fake.refuse = func(r string) error {
		if strings.HasPrefix(r, "server ") && strings.HasSuffix(r, " mh") {
			return syscall.ENOENT
		}
		return nil
	}
	wants := s.Services[1]
	wants.Hints = map[string]string{schedulerHint: "mh"}
	result, err := l.plugin.Sync(t.Context(), sdk.Update{From: l.revision, To: l.revision + 1, Set: []sdk.Service{wants}})
	refusal := new(sdk.Refusal)
	if err != nil || len(result.Failed) != 1 || !errors.As(result.Failed[0].Err, &refusal) || refusal.Try != "modprobe ip_vs_mh" {
		t.Fatalf("it should fail with what to type: %+v, %v", result, err)
	}
	l.revision++
	at := serviceKey{family: sdk.IPv4, protocol: sdk.TCP, addr: wants.Frontends[0].Addr}
	if l.fake.services[at].scheduling.scheduler != "rr" || len(l.fake.services[at].serving()) != 2 {
		t.Errorf("meanwhile %s is %+v; what served it should", at, l.fake.services[at])
	}
	l.fake.refuse = nil
	l.sync(sdk.Update{Set: []sdk.Service{wants}})
	if l.fake.services[at].scheduling.scheduler != "mh" {
		t.Errorf("the scheduler was loaded, and %s has %s", at, l.fake.services[at].scheduling.scheduler)
	}
}

// A hint that names no scheduler is a refusal of that Service.
func TestASchedulerThatIsNone(t *testing.T) {
	l := newLife(t)
	s := many(2)
	s.Services[0].Hints = map[string]string{schedulerHint: "fair"}
	result, err := l.plugin.Sync(t.Context(), s.Update(1))
	refusal := new(sdk.Refusal)
	if err != nil || len(result.Failed) != 1 || !errors.As(result.Failed[0].Err, &refusal) || !strings.Contains(refusal.Try, "rr, wrr") {
		t.Errorf("%+v, %v", result, err)
	}
}

// Without the right to change the kernel there is a refusal, and not an error that is
// tried again.
func TestNotAllowed(t *testing.T) {
	f := newFake(t)
	m := f.edges()
	m.open = func() (kernel, error) { return kernel{denying{f}, f, fakeLinks{f}}, nil }
	_, err := newPlugin(t.TempDir(), m).Configure(t.Context(), sdk.Setup{})
	if refusal := new(sdk.Refusal); !errors.As(err, &refusal) || !strings.Contains(refusal.Try, "NET_ADMIN") {
		t.Errorf("Configure says %v", err)
	}
}

// A kernel that denies.
type denying struct{ *fake }

func (denying) Timeouts() (timeouts, error) { return timeouts{}, fs.ErrPermission }

// What another program made in IPVS stays as it is, also in the ranges that are excluded.
func TestForeignServersStay(t *testing.T) {
	l := newLife(t)
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
		l.weighs(foreign, dest, 7)
		if s := l.fake.services[foreign]; s == nil || s.scheduling.scheduler != "wlc" {
			t.Errorf("a foreign virtual server is %+v", s)
		}
	}
	if len(l.fake.services) != 1 {
		t.Errorf("after Cleanup there are %v", l.fake.services)
	}
}

// In Standby nothing is at an address that the node has, and an inspection says what
// would be there.
func TestStandbyTellsWhatItLeavesOut(t *testing.T) {
	l := newLife(t)
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
			t.Errorf("%s at %s leads to %v", s.Name, s.Frontend, s.Endpoints)
		}
		return nil
	})
	if err != nil || answer != 4 {
		t.Errorf("told of %d frontends, %v", answer, err)
	}
}

// Node ports are served at the node's own addresses, those of 169.254.0.0/16 among them,
// as by kube-proxy; not at loopback's, nor where an address means another machine on each
// link.
func TestAddressesOfNodePorts(t *testing.T) {
	l := newLife(t)
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
		t.Errorf("node ports are served at %q, not at %q", at, want)
	}
}
