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
	"github.com/pointsman/pointsman/test/eventually"
)

// Adding an endpoint takes one request for each virtual server, one more if the endpoint may be a client of its own
// Service, and no read of the kernel, regardless of the number of Services.
func TestOneEndpointIsOneRequestPerServer(t *testing.T) {
	for _, n := range []int{10, 1000} {
		s := many(n)
		l := start(t, s)
		l.fake.counted()
		svc := s.Services[n/2]
		svc.Cluster = append(slices.Clone(svc.Cluster), sdk.Endpoint{Addr: endpoint(n/2, 3), OnNode: true})
		const servers = 2 // at the ClusterIP and at the node's address
		// The monitor also reads the kernel from time to time, so several tries may be needed.
		unasked := false
		for try := 0; try < 20 && !unasked; try++ {
			asked := l.fake.asked()
			for i, svc := range []sdk.Service{svc, s.Services[n/2]} {
				l.sync(sdk.Update{Set: []sdk.Service{svc}})
				if got := l.fake.counted(); len(got) != servers+1 {
					t.Fatalf("with %d Services, %s one endpoint sent the requests\n%s", n, []string{"adding", "removing"}[i], strings.Join(got, "\n"))
				}
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
		s := needMarks(60)
		for i := range s.Services {
			s.Services[i].HealthPort = uint16(30000 + i)
			s.Services[i].Frontends = append(s.Services[i].Frontends, many(60).Services[i].Frontends[1])
			s.Services[i].Cluster[0].OnNode = true
		}
		l := start(t, s)
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
		l.full(s)
		l.role(role)
		l.reap()
		if got := l.fake.counted(); len(got) > 0 {
			t.Errorf("%s: the restarted process sent the requests\n%s", role, strings.Join(got, "\n"))
		}
	}
}

// As soon as an address is bound, the node can use it as a source and be called at it. So the masquerade and guard
// rules must exist before.
func TestRulesExistBeforeTheFirstAddress(t *testing.T) {
	l := start(t, many(1))
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

// A removed endpoint keeps its connections, also when the process restarts while it is drained. If it is added again, it
// gets its weight back. It is deleted after its last connection has ended.
func TestDrainingOutlivesARestart(t *testing.T) {
	s := many(1)
	l := start(t, s)
	at := serviceKey{family: sdk.IPv4, protocol: sdk.TCP, addr: netip.MustParseAddrPort("172.30.0.0:80")}
	leaves := s.Services[0].Cluster[0].Addr
	l.fake.open(at, leaves, 1)
	s.Services[0].Cluster = s.Services[0].Cluster[1:]
	l.sync(sdk.Update{Set: s.Services})
	l.checkWeight(at, leaves, 0)
	l.reap()
	l.checkWeight(at, leaves, 0)

	l.restart()
	l.full(s)
	l.reap()
	l.checkWeight(at, leaves, 0)
	l.sync(sdk.Update{Set: many(1).Services})
	l.checkWeight(at, leaves, 1)
	l.sync(sdk.Update{Set: s.Services})
	l.checkWeight(at, leaves, 0)
	l.fake.open(at, leaves, -1)
	l.reap()
	l.checkWeight(at, leaves, -1)
}

// checkWeight checks the weight of a destination. -1 means that the destination does not exist.
func (l *instance) checkWeight(at serviceKey, dest netip.AddrPort, want int) {
	l.Helper()
	l.fake.mu.Lock()
	defer l.fake.mu.Unlock()
	got, there := l.fake.services[at].weight(dest)
	if !there {
		got = -1
	}
	if got != want {
		l.Errorf("%s of %s has weight %d, not %d", dest, at, got, want)
	}
}

// A Service that the mode or the kernel cannot serve is refused with a hint, and keeps its previous state. A scheduler can
// be loaded later: then the next try succeeds.
func TestRefusals(t *testing.T) {
	s := many(3)
	l := start(t, s)
	l.fake.refuse = func(r string) error {
		if strings.HasPrefix(r, "server ") && strings.HasSuffix(r, ", sticky for 60s") {
			return syscall.ENOENT
		}
		return nil
	}
	wants, before := s.Services[1], l.fake.snapshot()
	large, sticky := wants, wants
	large.Cluster, sticky.Affinity = make([]sdk.Endpoint, Ceiling+1), time.Minute
	for i := range large.Cluster {
		large.Cluster[i].Addr = endpoint(i, 3)
	}
	for try, refused := range map[string]sdk.Service{"several Services": large, "modprobe ip_vs_rr": sticky} {
		failed, err := l.trySync(sdk.Update{Set: []sdk.Service{refused}})
		refusal := new(sdk.Refusal)
		if err != nil || len(failed) != 1 || !errors.As(failed[wants.Name], &refusal) || !strings.Contains(refusal.Try, try) {
			t.Errorf("want a failure with %q: %v, %v", try, failed, err)
		}
		if after := l.fake.snapshot(); after != before {
			t.Errorf("%q: the kernel has the extra objects\n%s\nand lacks\n%s", try, lacking(after, before), lacking(before, after))
		}
	}
	l.fake.refuse = nil
	l.sync(sdk.Update{Set: []sdk.Service{sticky}})
	if at := (serviceKey{family: sdk.IPv4, protocol: sdk.TCP, addr: wants.Frontends[0].Addr}); l.fake.services[at].scheduling.affinity != 60 {
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

func (denying) Exists(serviceKey) (bool, error) { return false, fs.ErrPermission }

// Like kube-proxy, the dataplane serves node ports at the node's own addresses, including those in 169.254.0.0/16. It
// does not serve them at loopback and IPv6 link-local addresses, and in Standby not at all.
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
	l.full(s)
	for _, role := range []sdk.Role{sdk.Standby, sdk.Active} {
		l.role(role)
		var want []string
		if role == sdk.Active {
			want = []string{"169.254.7.7", "192.0.2.10", "2001:db8::10"}
		}
		var at []string
		for v := range l.fake.services {
			if v.addr.Port() == 20000 {
				at = append(at, v.addr.Addr().String())
			}
		}
		if slices.Sort(at); !slices.Equal(at, want) {
			t.Errorf("in %s node ports are served at %q, want %q", role, at, want)
		}
	}
}

// refuseServer makes the kernel refuse the virtual server at addr, and calls check before it accepts another one.
func (l *instance) refuseServer(addr netip.Addr, check func(request string)) {
	l.fake.mu.Lock()
	defer l.fake.mu.Unlock()
	l.fake.refuse = func(request string) error {
		switch {
		case !strings.HasPrefix(request, "server "):
		case strings.Contains(request, " "+addr.String()+":"):
			return syscall.EINVAL
		default:
			check(request)
		}
		return nil
	}
}

// If the kernel refuses a Service in a batch, new connections are led here only when the later batches are written, too.
func TestLeadsConnectionsAfterAllBatches(t *testing.T) {
	s := many(4)
	l := newInstance(t)
	l.role(sdk.Active)
	l.exclusively(func() { l.plugin.session.families[0].Batch = 1 })
	l.refuseServer(s.Services[0].Frontends[0].Addr.Addr(), func(request string) {
		for _, j := range activeJumps() {
			if slices.Contains(l.fake.tables[sdk.IPv4][j.At], j.Rule) {
				t.Errorf("%s leads connections here before the request %q", j.At, request)
			}
		}
	})
	(&fakeTestbed{fake: l.fake}).Place(s)
	if failed, err := l.trySync(s.Update(0)); err != nil || len(failed) != 1 {
		t.Errorf("failed: %v, %v", failed, err)
	}
	for _, svc := range s.Services[1:] {
		l.checkServing(serviceKey{family: sdk.IPv4, protocol: sdk.TCP, addr: svc.Frontends[0].Addr}, ends(svc)...)
	}
	for _, j := range activeJumps() {
		if !slices.Contains(l.fake.tables[sdk.IPv4][j.At], j.Rule) {
			t.Errorf("%s does not lead connections here", j.At)
		}
	}
}

// ends returns the addresses of a Service's endpoints, sorted.
func ends(svc sdk.Service) (all []netip.AddrPort) {
	for _, e := range svc.Cluster {
		all = append(all, e.Addr)
	}
	slices.SortFunc(all, netip.AddrPort.Compare)
	return all
}

// If the kernel refuses in a repair what served a Service before, everything else is repaired: other Services, rules, and
// entries that another program has added.
func TestRepairsOthersThanTheRefused(t *testing.T) {
	s := many(4)
	l := start(t, s)
	l.exclusively(func() {
		l.refuseServer(s.Services[0].Frontends[0].Addr.Addr(), func(string) {})
		l.fake.mu.Lock()
		clear(l.fake.services)
		l.fake.sets["PM-CLUSTER-IP"].entries["172.30.9.9,tcp:80"] = ""
		l.fake.tables[sdk.IPv4][nat("PREROUTING")] = nil
		l.fake.mu.Unlock()
		l.compareRules()
	})
	eventually.True(t, "all others are repaired", func() bool {
		l.fake.mu.Lock()
		defer l.fake.mu.Unlock()
		for _, svc := range s.Services[1:] {
			at := serviceKey{family: sdk.IPv4, protocol: sdk.TCP, addr: svc.Frontends[0].Addr}
			if server := l.fake.services[at]; server == nil || !slices.Equal(server.serving(), ends(svc)) {
				return false
			}
		}
		_, strange := l.fake.sets["PM-CLUSTER-IP"].entries["172.30.9.9,tcp:80"]
		return !strange && slices.Contains(l.fake.tables[sdk.IPv4][nat("PREROUTING")], activeJumps()[0].Rule)
	})
	l.exclusively(func() { l.fake.refuse = nil })
	at := serviceKey{family: sdk.IPv4, protocol: sdk.TCP, addr: s.Services[0].Frontends[0].Addr}
	eventually.True(t, "the refused Service is repaired when the kernel accepts it", func() bool {
		l.fake.mu.Lock()
		defer l.fake.mu.Unlock()
		return l.fake.services[at] != nil && slices.Equal(l.fake.services[at].serving(), ends(s.Services[0]))
	})
}
