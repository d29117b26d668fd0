// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"bufio"
	"context"
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
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/wire"
)

// A canary is a Service of the host's own, there for the time of a swap: an address
// of 192.0.2.0/24, one of the node's, and a node port. The host answers behind it,
// so connections to it prove a dataplane without troubling any user's Service.
type canary struct {
	tracker *track.Tracker
	node    string // this node's name
	addr    netip.Addr
	plugins func() []int // the processes that may have to do with a packet's way; nil: nobody asks

	mu       sync.Mutex // guards what follows
	listener net.Listener
	ways     []way
}

// A way leads to the canary, by one frontend.
type way struct {
	service string // of the canary's
	at      netip.AddrPort
}

const (
	canarySpace = "pointsman"
	afar        = "canary"         // on an address that nobody has
	near        = "canary-on-node" // on the node's own address and a node port
	chirp       = "the canary lives\n"
)

// canaryAddr is set aside for examples by RFC 5737, so no network uses it.
var canaryAddr = netip.AddrFrom4([4]byte{192, 0, 2, 79})

// begin makes the Service, if it is not there.
func (c *canary) begin() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.listener != nil {
		return nil
	}
	l, err := net.Listen("tcp", netip.AddrPortFrom(c.addr, 0).String())
	if err != nil {
		return fmt.Errorf("make the canary: %w", err)
	}
	own, nodePort, err := freePorts(c.addr)
	if err != nil {
		return errors.Join(fmt.Errorf("make the canary: %w", err), l.Close())
	}
	c.listener = l
	go answerCanary(l) // ends with the listener
	at := netip.MustParseAddrPort(l.Addr().String())
	port := uint16(7079)
	c.ways = []way{{near, netip.AddrPortFrom(c.addr, own)}, {near, netip.AddrPortFrom(c.addr, nodePort)}}
	c.tell(near, c.addr, own, nodePort, at)
	if c.addr.Is4() {
		c.ways = append(c.ways, way{afar, netip.AddrPortFrom(canaryAddr, port)})
		c.tell(afar, canaryAddr, port, 0, at)
	}
	return nil
}

// end takes it away.
func (c *canary) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.listener == nil {
		return
	}
	for _, name := range []string{near, afar} {
		c.tracker.DeleteService(canarySpace, name)
		c.tracker.DeleteSlice(canarySpace, name)
	}
	_ = c.listener.Close()
	c.listener, c.ways = nil, nil
}

// tell tells the tracker of a Service whose one endpoint is at.
func (c *canary) tell(name string, addr netip.Addr, port, nodePort uint16, at netip.AddrPort) {
	family, kind := corev1.IPv4Protocol, discoveryv1.AddressTypeIPv4
	if addr.Is6() {
		family, kind = corev1.IPv6Protocol, discoveryv1.AddressTypeIPv6
	}
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: canarySpace, Name: name}}
	svc.Spec = corev1.ServiceSpec{
		Type: corev1.ServiceTypeClusterIP, ClusterIP: addr.String(), ClusterIPs: []string{addr.String()},
		IPFamilies: []corev1.IPFamily{family},
		Ports:      []corev1.ServicePort{{Protocol: corev1.ProtocolTCP, Port: int32(port), NodePort: int32(nodePort)}},
	}
	if nodePort != 0 {
		svc.Spec.Type = corev1.ServiceTypeNodePort
	}
	yes, number, protocol, unnamed := true, int32(at.Port()), corev1.ProtocolTCP, ""
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: canarySpace, Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: name}},
		AddressType: kind,
		Endpoints: []discoveryv1.Endpoint{{
			Addresses: []string{at.Addr().String()}, NodeName: &c.node,
			Conditions: discoveryv1.EndpointConditions{Ready: &yes},
		}},
		Ports: []discoveryv1.EndpointPort{{Name: &unnamed, Port: &number, Protocol: &protocol}},
	}
	c.tracker.SetService(svc)
	c.tracker.SetSlice(slice)
}

// freePorts are two that nobody has. On a busy node most may be callers' own, so they are
// those that the kernel finds.
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

func answerCanary(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		_ = conn.SetDeadline(time.Now().Add(time.Second))
		_, _ = io.WriteString(conn, chirp)
		_ = conn.Close()
	}
}

func (c *canary) all() []way {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.ways)
}

// sound finds the ways that lead there now, soon.
func (c *canary) sound(ctx context.Context) []string {
	var lead []string
	var mu sync.Mutex // guards lead
	var all sync.WaitGroup
	for _, w := range c.all() {
		all.Go(func() {
			if heard(ctx, w, 5, c.patience(time.Second/2)) == nil {
				mu.Lock()
				defer mu.Unlock()
				lead = append(lead, w.at.String())
			}
		})
	}
	all.Wait()
	return lead
}

// errUnproved is that no way to the canary can be demanded.
var errUnproved = errors.New("the swap goes on unproved")

// prove holds the ways that lead there before to leading there, but for those of
// Services that are not served. If none did, one must now, unless none is served at all:
// that is errUnproved.
func (c *canary) prove(ctx context.Context, before []string, unserved map[sdk.Name]bool) error {
	ways := c.all()
	served := slices.DeleteFunc(slices.Clone(ways), func(w way) bool {
		return unserved[sdk.Name{Namespace: canarySpace, Service: w.service, Protocol: sdk.TCP, Family: sdk.FamilyOf(w.at.Addr())}]
	})
	if len(served) == 0 && len(ways) > 0 {
		return fmt.Errorf("what is to serve has said that it serves no way to the canary: %w", errUnproved)
	}
	demanded := slices.DeleteFunc(served, func(w way) bool {
		return len(before) > 0 && !slices.Contains(before, w.at.String())
	})
	errs := c.hearAll(ctx, demanded)
	lead := len(demanded) - len(errs)
	switch {
	case len(before) > 0:
		return errors.Join(errs...)
	case lead == 0:
		return errors.Join(append(errs, errors.New("no way leads to the canary"))...)
	}
	return nil
}

// patience is a limit in which time does not count that the host, or a plugin, spends
// waiting for a processor: the canary answers from this process, and a relay is in its way.
func (c *canary) patience(limit time.Duration) wire.Patience {
	p := wire.Patience{Limit: limit}
	if c.plugins != nil {
		p.PIDs = c.plugins()
	}
	return p
}

// hearAll tries all ways at once, and returns why those that do not lead there do not. New
// connections of users go to the same dataplane meanwhile, so it gives up soon.
func (c *canary) hearAll(ctx context.Context, ways []way) (errs []error) {
	var mu sync.Mutex // guards errs
	var all sync.WaitGroup
	for _, w := range ways {
		all.Go(func() {
			if err := heard(ctx, w, 10, c.patience(provedWithin)); err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err)
			}
		})
	}
	all.Wait()
	return errs
}

// provedWithin is how long a way may take to lead to the canary, ten times in a row, once a
// dataplane is Active.
const provedWithin = 1500 * time.Millisecond

// heard tries until the canary was heard n times in a row.
func heard(ctx context.Context, w way, n int, patience wire.Patience) error {
	ctx, cancel := patience.Context(ctx)
	defer cancel()
	for row := 0; row < n; {
		err := hear(ctx, w.at)
		if err == nil {
			row++
			continue
		}
		row = 0
		select {
		case <-ctx.Done():
			return fmt.Errorf("the canary at %s (%s): %w", w.at, w.service, err)
		case <-time.After(glance):
		}
	}
	return nil
}

// hear connects once, and listens.
func hear(ctx context.Context, at netip.AddrPort) error {
	conn, err := (&net.Dialer{Timeout: time.Second / 2}).DialContext(ctx, "tcp", at.String())
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	text, err := bufio.NewReader(io.LimitReader(conn, int64(len(chirp)))).ReadString('\n')
	if err == nil && text != chirp {
		err = fmt.Errorf("it said %q", text)
	}
	return err
}

// newCanary is one that does not live yet. It is to be reached at the node's first
// address.
func newCanary(t *track.Tracker, node string, addrs []netip.Addr) *canary {
	c := &canary{tracker: t, node: node, addr: netip.AddrFrom4([4]byte{127, 0, 0, 1})}
	if i := slices.IndexFunc(addrs, netip.Addr.Is4); i >= 0 {
		c.addr = addrs[i]
	} else if len(addrs) > 0 {
		c.addr = addrs[0]
	}
	return c
}
