// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest/netns"
	"github.com/pointsman/pointsman/test/cluster"
	"github.com/pointsman/pointsman/test/eventually"
)

// timeout limits each wait. It is long, because a test must not fail on a busy machine.
var timeout = 2 * time.Minute

// The ports that every pod answers on, TCP and UDP.
const (
	backend = 8080
	renamed = 9090
)

// A world is the cluster, its nodes, and the callers.
type world struct {
	testing.TB
	api    *cluster.Cluster
	kube   kubernetes.Interface // of an administrator
	lands  []*land
	nodes  []*node
	client *place
}

// A land is a network with the cluster's nodes, served by one dataplane.
type land struct {
	mode
	index   int // index in world.lands, place.hosts and node.machines
	testbed *netns.Testbed
}

// A place is a host with the same addresses in each land, IPv4 first, from which a test can call.
type place struct {
	hosts []*netns.Host
	addrs [2]netip.Addr
}

func addr(format string, args ...any) netip.Addr {
	return netip.MustParseAddr(fmt.Sprintf(format, args...))
}

// newWorld creates a cluster of two nodes with a land for each mode. No host runs yet.
func newWorld(t testing.TB, modes ...mode) *world {
	t.Helper()
	cluster.Need(t)
	w := &world{TB: t}
	for i, m := range modes {
		w.lands = append(w.lands, &land{mode: m, index: i, testbed: newTestbed(t)})
	}
	w.api = cluster.Start(t, cluster.Options{Audit: true})
	w.kube = w.api.Client()
	w.client = w.place("client", addr("198.18.0.7"), addr("2001:db8:c::7"))
	w.grantRights()
	for i := range 2 {
		w.nodes = append(w.nodes, w.newNode(i))
	}
	return w
}

func newTestbed(t testing.TB) *netns.Testbed {
	t.Helper()
	testbed, err := netns.Apart()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := testbed.Close(); err != nil {
			t.Error(err)
		}
	})
	return testbed
}

// on returns a copy of w for a subtest.
func (w *world) on(t testing.TB) *world {
	v := *w
	v.TB = t
	return &v
}

// firstLand returns w with only the first land.
func (w *world) firstLand() *world {
	v := *w
	v.lands = w.lands[:1]
	return &v
}

func (w *world) place(name string, addrs ...netip.Addr) *place {
	w.Helper()
	p := &place{addrs: [2]netip.Addr(addrs)}
	for _, l := range w.lands {
		var host *netns.Host
		for _, a := range addrs {
			var err error
			if host, err = l.testbed.Behind(name, a); err != nil {
				w.Fatal(err)
			}
		}
		p.hosts = append(p.hosts, host)
	}
	return p
}

// pod creates pod j of node i, which answers on all ports.
func (w *world) pod(i, j int, node *place) *place {
	w.Helper()
	p := &place{addrs: [2]netip.Addr{addr("10.244.%d.%d", i+1, j+2), addr("fd00:10:244:%d::%d", i+1, j+2)}}
	for _, l := range w.lands {
		host, err := l.testbed.Pod(node.hosts[l.index], p.addrs[:]...)
		if err != nil {
			w.Fatal(err)
		}
		p.hosts = append(p.hosts, host)
		w.answer(host, p.addrs, backend, renamed)
	}
	return p
}

// answer lets host answer on ports, until the test ends.
func (w *world) answer(host *netns.Host, addrs [2]netip.Addr, ports ...uint16) {
	w.Helper()
	for _, a := range addrs {
		for _, port := range ports {
			for _, protocol := range []sdk.Protocol{sdk.TCP, sdk.UDP} {
				end, err := netns.Answer(w.Context(), host, protocol, netip.AddrPortFrom(a, port))
				if err != nil {
					w.Fatal(err)
				}
				w.Cleanup(func() { end.Close() })
			}
		}
	}
}

// until waits until ok returns no error.
func (w *world) until(what string, ok func() error) {
	w.Helper()
	if err := eventually.Try(timeout, ok); err != nil {
		w.Fatalf("%s: %v", what, err)
	}
}

// inEachLand waits until ok returns no error in each land.
func (w *world) inEachLand(what string, ok func(*land) error) {
	w.Helper()
	errs := make([]error, len(w.lands))
	var waiting sync.WaitGroup
	for i, l := range w.lands {
		waiting.Go(func() {
			if err := eventually.Try(timeout, func() error { return ok(l) }); err != nil {
				errs[i] = fmt.Errorf("%s: %w", l.label, err)
			}
		})
	}
	waiting.Wait()
	if err := errors.Join(errs...); err != nil {
		w.Fatalf("%s: %v", what, err)
	}
}
