// SPDX-License-Identifier: Apache-2.0

/*
Package canary proves that a dataplane forwards packets to where they belong, by a Service of
the host's own.

The Service is there for the time of a swap. It has an address of 192.0.2.0/24, one of the
node's own, and a node port; the host itself answers behind it. So no user's Service is
called to try things out.

	Begin ─▶ the tracker has the Service ─▶ each dataplane is told of it
	Probe ─▶ which of its addresses answer, before traffic is switched
	Prove ─▶ those must answer afterwards, too
	End   ─▶ the Service is gone
*/
package canary

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pointsman/pointsman/host/track"
)

// Namespace is that of the canary's Services.
const Namespace = "pointsman"

// The canary's Services.
const (
	onTest = "canary"         // on an address that no node has
	onNode = "canary-on-node" // on the node's own address and a node port
)

// testAddr is reserved for examples by RFC 5737, so no network uses it; testPort is any.
var testAddr = netip.AddrFrom4([4]byte{192, 0, 2, 79})

const testPort = 7079

// greeting is what the canary answers each connection with.
const greeting = "the canary lives\n"

// A Canary is the Service and the listener behind it. It is safe for concurrent use.
type Canary struct {
	tracker *track.Tracker
	node    string // this node's name
	addr    netip.Addr
	plugins func() []int // the processes that a connection may lead through; nil: none

	mu       sync.Mutex // guards what follows
	listener net.Listener
	targets  []target
}

// A target is an address at which the canary is to answer.
type target struct {
	service string // of the canary's
	addr    netip.AddrPort
}

// New returns a Canary that begins with Begin. It is to be reached at the node's first address
// of IPv4, or else at its first one. plugins are the processes whose time without a
// processor does not count while an answer is waited for; it may be nil.
func New(t *track.Tracker, node string, addrs []netip.Addr, plugins func() []int) *Canary {
	c := &Canary{tracker: t, node: node, addr: netip.AddrFrom4([4]byte{127, 0, 0, 1}), plugins: plugins}
	if i := slices.IndexFunc(addrs, netip.Addr.Is4); i >= 0 {
		c.addr = addrs[i]
	} else if len(addrs) > 0 {
		c.addr = addrs[0]
	}
	return c
}

// Begin makes the Service, if it is not there.
func (c *Canary) Begin() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.listener != nil {
		return nil
	}
	l, err := net.Listen("tcp", netip.AddrPortFrom(c.addr, 0).String())
	if err != nil {
		return fmt.Errorf("make the canary: %w", err)
	}
	port, nodePort, err := freePorts(c.addr)
	if err != nil {
		return errors.Join(fmt.Errorf("make the canary: %w", err), l.Close())
	}
	c.listener = l
	go answer(l) // ends with the listener
	endpoint := netip.MustParseAddrPort(l.Addr().String())
	c.targets = []target{{onNode, netip.AddrPortFrom(c.addr, port)}, {onNode, netip.AddrPortFrom(c.addr, nodePort)}}
	c.track(service{name: onNode, addr: c.addr, port: port, nodePort: nodePort, endpoint: endpoint})
	if c.addr.Is4() {
		c.targets = append(c.targets, target{onTest, netip.AddrPortFrom(testAddr, testPort)})
		c.track(service{name: onTest, addr: testAddr, port: testPort, endpoint: endpoint})
	}
	return nil
}

// End removes the Service, if it is there.
func (c *Canary) End() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.listener == nil {
		return
	}
	for _, name := range []string{onNode, onTest} {
		c.tracker.DeleteService(Namespace, name)
		c.tracker.DeleteSlice(Namespace, name)
	}
	_ = c.listener.Close()
	c.listener, c.targets = nil, nil
}

// freePorts returns two that nothing listens on. On a busy node callers have most of them, so
// they are those that the kernel finds.
func freePorts(addr netip.Addr) (one, other uint16, err error) {
	var ports [2]uint16
	for i := range ports {
		l, err := net.Listen("tcp", netip.AddrPortFrom(addr, 0).String())
		if err != nil {
			return 0, 0, err
		}
		defer l.Close() // only then, or the other would be the same
		ports[i] = netip.MustParseAddrPort(l.Addr().String()).Port()
	}
	return ports[0], ports[1], nil
}

// answer greets each connection, until the listener closes.
func answer(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		_ = conn.SetDeadline(time.Now().Add(time.Second))
		_, _ = io.WriteString(conn, greeting)
		_ = conn.Close()
	}
}

// A service is one of the canary's Services, with its one endpoint.
type service struct {
	name     string
	addr     netip.Addr
	port     uint16
	nodePort uint16 // zero: none
	endpoint netip.AddrPort
}

// track gives the tracker a Service.
func (c *Canary) track(s service) {
	c.tracker.SetService(s.object())
	c.tracker.SetSlice(s.slice(c.node))
}

func (s service) object() *corev1.Service {
	family := corev1.IPv4Protocol
	if s.addr.Is6() {
		family = corev1.IPv6Protocol
	}
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: s.name}}
	svc.Spec = corev1.ServiceSpec{
		Type: corev1.ServiceTypeClusterIP, ClusterIP: s.addr.String(), ClusterIPs: []string{s.addr.String()},
		IPFamilies: []corev1.IPFamily{family},
		Ports:      []corev1.ServicePort{{Protocol: corev1.ProtocolTCP, Port: int32(s.port), NodePort: int32(s.nodePort)}},
	}
	if s.nodePort != 0 {
		svc.Spec.Type = corev1.ServiceTypeNodePort
	}
	return svc
}

func (s service) slice(node string) *discoveryv1.EndpointSlice {
	kind := discoveryv1.AddressTypeIPv4
	if s.addr.Is6() {
		kind = discoveryv1.AddressTypeIPv6
	}
	ready, port, protocol, unnamed := true, int32(s.endpoint.Port()), corev1.ProtocolTCP, ""
	return &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: Namespace, Name: s.name, Labels: map[string]string{discoveryv1.LabelServiceName: s.name}},
		AddressType: kind,
		Endpoints: []discoveryv1.Endpoint{{
			Addresses: []string{s.endpoint.Addr().String()}, NodeName: &node,
			Conditions: discoveryv1.EndpointConditions{Ready: &ready},
		}},
		Ports: []discoveryv1.EndpointPort{{Name: &unnamed, Port: &port, Protocol: &protocol}},
	}
}
