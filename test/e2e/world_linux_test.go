// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest/netns"
	"github.com/pointsman/pointsman/test/cluster"
)

// patience is for what must happen: long, for a loaded machine is no failure.
const patience = time.Minute

// The ports that every pod answers on, TCP and UDP.
const (
	backend = 8080
	renamed = 9090
)

// A world is the cluster, its nodes, and who calls.
type world struct {
	testing.TB
	ground *netns.Ground
	api    *cluster.Cluster
	kube   kubernetes.Interface // as an administrator
	nodes  [2]*node
	client *place
	hides  bool // endpoints do not see who calls, as the mode has it
}

// A place is where one can call from: a host and its addresses, IPv4 first.
type place struct {
	host  *netns.Host
	addrs [2]netip.Addr
}

func addr(format string, args ...any) netip.Addr {
	return netip.MustParseAddr(fmt.Sprintf(format, args...))
}

func newWorld(t testing.TB) *world {
	t.Helper()
	need(t)
	ground, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ground.Close(); err != nil {
			t.Error(err)
		}
	})
	w := &world{TB: t, ground: ground, api: cluster.Start(t, cluster.Options{Audit: true})}
	w.kube = w.connect()
	w.client = w.place("client", addr("198.18.0.7"), addr("2001:db8:c::7"))
	w.grant()
	for i := range w.nodes {
		w.nodes[i] = w.newNode(i)
	}
	return w
}

// on is w for a test within the test.
func (w *world) on(t testing.TB) *world {
	v := *w
	v.TB = t
	return &v
}

func (w *world) place(name string, addrs ...netip.Addr) *place {
	w.Helper()
	p := &place{addrs: [2]netip.Addr(addrs)}
	for _, a := range addrs {
		h, err := w.ground.Behind(name, a)
		if err != nil {
			w.Fatal(err)
		}
		p.host = h
	}
	return p
}

// pod makes pod j of node i, which answers on all ports.
func (w *world) pod(i, j int, node *place) *place {
	w.Helper()
	p := &place{addrs: [2]netip.Addr{addr("10.244.%d.%d", i+1, j+2), addr("fd00:10:244:%d::%d", i+1, j+2)}}
	host, err := w.ground.Pod(node.host, p.addrs[:]...)
	if err != nil {
		w.Fatal(err)
	}
	p.host = host
	w.answer(p, backend)
	w.answer(p, renamed)
	return p
}

// answer has p answer on a port, until the test ends.
func (w *world) answer(p *place, port uint16) {
	w.Helper()
	for _, a := range p.addrs {
		for _, protocol := range []sdk.Protocol{sdk.TCP, sdk.UDP} {
			end, err := netns.Answer(w.Context(), p.host, protocol, netip.AddrPortFrom(a, port))
			if err != nil {
				w.Fatal(err)
			}
			w.Cleanup(func() { end.Close() })
		}
	}
}

// until waits for ok.
func (w *world) until(what string, ok func() error) {
	w.Helper()
	var err error
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if err = ok(); err == nil {
			return
		}
	}
	w.Fatalf("%s: %v", what, err)
}
