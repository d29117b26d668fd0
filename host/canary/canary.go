// SPDX-License-Identifier: Apache-2.0

/*
Package canary proves with Services of its own that a dataplane forwards packets to the right endpoint.

The Services exist only during a swap. They have an address in
192.0.2.0/24, an address of the node, and a node port. The host itself is their endpoint and answers.

	Begin ─▶ add the Services to the tracker ─▶ every dataplane receives them
	Probe ─▶ returns which of their addresses answer, before traffic is switched
	Prove ─▶ checks that the same addresses answer afterwards
	End   ─▶ remove the Services

It never uses a user's Service, and never decides what follows from a result: package dataplanes does. Start reading at
Canary.Begin.
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

// Namespace is the namespace of the canary's Services.
const Namespace = "pointsman"

// Names of the canary's Services.
const (
	onTest = "canary"         // on an address that no node has
	onNode = "canary-on-node" // on the node's own address and a node port
)

// testAddr is reserved for documentation by RFC 5737, so no network uses it. testPort is
// arbitrary.
var testAddr = netip.AddrFrom4([4]byte{192, 0, 2, 79})

const testPort = 7079

// greeting is sent on each connection to the canary.
const greeting = "the canary lives\n"

// A Canary is the test Services and the listener behind them. It is safe for concurrent use.
type Canary struct {
	tracker *track.Tracker
	node    string // this node's name
	addr    netip.Addr

	mu       sync.Mutex // guards the fields below
	listener net.Listener
	targets  []target
}

// A target is an address at which the canary should answer.
type target struct {
	service string // name of the canary's Service
	addr    netip.AddrPort
}

// New returns a Canary; Begin starts it. It uses the node's first IPv4 address, or else its
// first address.
func New(t *track.Tracker, node string, addrs []netip.Addr) *Canary {
	c := &Canary{tracker: t, node: node, addr: netip.AddrFrom4([4]byte{127, 0, 0, 1})}
	if i := slices.IndexFunc(addrs, netip.Addr.Is4); i >= 0 {
		c.addr = addrs[i]
	} else if len(addrs) > 0 {
		c.addr = addrs[0]
	}
	return c
}

// Begin creates the Services, unless they exist.
func (c *Canary) Begin() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.listener != nil {
		return nil
	}
	l, err := net.Listen("tcp", netip.AddrPortFrom(c.addr, 0).String())
	if err != nil {
		return fmt.Errorf("create the canary: %w", err)
	}
	port, nodePort, err := freePorts(c.addr)
	if err != nil {
		return errors.Join(fmt.Errorf("create the canary: %w", err), l.Close())
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

// End removes the Services, if they exist.
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

// freePorts returns two ports on which nothing listens. It lets the kernel choose them, because
// on a busy node most ports are in use.
func freePorts(addr netip.Addr) (one, other uint16, err error) {
	var ports [2]uint16
	for i := range ports {
		l, err := net.Listen("tcp", netip.AddrPortFrom(addr, 0).String())
		if err != nil {
			return 0, 0, err
		}
		defer l.Close() // keep it open, so that the kernel chooses another port next
		ports[i] = netip.MustParseAddrPort(l.Addr().String()).Port()
	}
	return ports[0], ports[1], nil
}

// answer sends the greeting on each connection, until the listener is closed.
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

// A service is one of the canary's Services, with one endpoint.
type service struct {
	name     string
	addr     netip.Addr
	port     uint16
	nodePort uint16 // zero if none
	endpoint netip.AddrPort
}

// track adds a Service to the tracker.
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
