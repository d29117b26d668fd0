// SPDX-License-Identifier: Apache-2.0

package breakage

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/pointsman/pointsman/test/traffic"
)

// The addresses of the world.
var (
	nodeAddr = netip.MustParseAddr("192.0.2.10")
	vip      = netip.MustParseAddr("172.30.0.10")
	pod      = netip.MustParseAddr("10.180.0.9")
	client   = netip.MustParseAddr("198.18.0.7")
	backends = []netip.Addr{netip.MustParseAddr("10.180.0.1"), netip.MustParseAddr("10.180.1.1"), netip.MustParseAddr("10.180.1.2")}
)

const (
	most     = 12   // Services that come and go
	port     = 8080 // of an endpoint that answers with what was said
	namePort = 8081 // of one that says which it is
	nodePort = 30080
)

// web is the Service that callers call all the time.
const web = `
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec:
  type: NodePort
  clusterIP: 172.30.0.10
  ports:
  - {name: tcp, port: 8080, nodePort: 30080, protocol: TCP}
  - {name: udp, port: 8080, nodePort: 30080, protocol: UDP}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: shop, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: tcp, port: 8080, protocol: TCP}, {name: udp, port: 8080, protocol: UDP}]
endpoints: [{addresses: [10.180.0.1]}, {addresses: [10.180.1.1]}]
`

// A service is one that comes, goes and changes.
type service struct {
	Index     int // of its name, address and node port
	Address   int // which of its addresses it has
	NodePort  bool
	Local     bool // external traffic stays on the node
	Sticky    bool
	Allowed   bool // only the client outside may call its load balancer's address
	Endpoints []netip.Addr
}

func (s service) name() string { return fmt.Sprintf("s%d", s.Index) }

// vip is the address that the cluster calls it by.
func (s service) vip() netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{172, 30, byte(1 + s.Address), byte(1 + s.Index)}), 80)
}

// balanced is its load balancer's address.
func (s service) balanced() netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{203, 0, 113, byte(100 + s.Index)}), 80)
}

// manifest is the file of it.
func (s service) manifest() string {
	kind, port, more, status := "ClusterIP", "{port: 80, targetPort: 8081}", "", ""
	if s.NodePort || s.Local || s.Allowed {
		kind, port = "NodePort", fmt.Sprintf("{port: 80, targetPort: 8081, nodePort: %d}", 31000+s.Index)
	}
	if s.Local {
		more += "  externalTrafficPolicy: Local\n"
	}
	if s.Sticky {
		more += "  sessionAffinity: ClientIP\n"
	}
	if s.Allowed {
		kind, more = "LoadBalancer", more+"  loadBalancerSourceRanges: [198.18.0.0/24]\n"
		status = fmt.Sprintf("status: {loadBalancer: {ingress: [{ip: %s}]}}\n", s.balanced().Addr())
	}
	var endpoints []string
	for _, addr := range s.Endpoints {
		node := "nodeName: elsewhere"
		if netip.MustParsePrefix("10.180.0.0/24").Contains(addr) {
			node = "nodeName: n1"
		}
		endpoints = append(endpoints, fmt.Sprintf("{addresses: [%s], %s}", addr, node))
	}
	return fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: %[1]s, namespace: shop}
spec:
  type: %[2]s
  clusterIP: %[3]s
  ports: [%[4]s]
%[5]s%[6]s---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[1]s-1, namespace: shop, labels: {kubernetes.io/service-name: %[1]s}}
addressType: IPv4
ports: [{port: 8081}]
endpoints: [%[7]s]
`, s.name(), kind, s.vip().Addr(), port, more, status, strings.Join(endpoints, ", "))
}

// another is a random one.
func (n *node) another(index int) service {
	s := service{Index: index, Address: n.IntN(3), NodePort: n.IntN(3) == 0, Local: n.IntN(4) == 0, Sticky: n.IntN(4) == 0, Allowed: n.IntN(5) == 0}
	for _, addr := range backends {
		if n.IntN(2) == 0 {
			s.Endpoints = append(s.Endpoints, addr)
		}
	}
	return s
}

// churn changes some Services: they come, go, and become others.
func (n *node) churn(count int) {
	n.Helper()
	for range count {
		s := n.another(n.IntN(most))
		file := "services/" + s.name() + ".yaml"
		if _, there := n.services[s.Index]; there && n.IntN(3) == 0 {
			if err := os.Remove(n.path(file)); err != nil {
				n.Fatal(err)
			}
			delete(n.services, s.Index)
			continue
		}
		n.write(file, s.manifest())
		n.services[s.Index] = s
	}
}

// reached holds each Service to where its calls should go, all at once.
func (n *node) reached() error {
	found := make(chan error)
	for index := range most {
		go func() { found <- n.reachedAs(index) }() // ends with its calls
	}
	var wrong []error
	for range most {
		wrong = append(wrong, <-found)
	}
	return errors.Join(wrong...)
}

// reachedAs holds one Service to where its calls should go, and an address that it could
// have, and has not, to leading nowhere.
func (n *node) reachedAs(index int) error {
	s, there := n.services[index]
	no := service{Index: index, Address: (s.Address + 1) % 3}
	if who, err := n.asks(client, no.vip()); err == nil {
		return fmt.Errorf("%s answers at %s, where no Service is", who, no.vip())
	}
	if !there {
		return nil
	}
	if err := n.reaches(s, s.vip(), pod, s.Endpoints); err != nil || !s.Allowed {
		return err
	}
	if who, err := n.asks(pod, s.balanced()); err == nil {
		return fmt.Errorf("%s answers the pod, which may not call %s", who, s.balanced())
	}
	if s.Local {
		return nil
	}
	return n.reaches(s, s.balanced(), client, s.Endpoints)
}

// reaches holds a Service to being answered by one of these, or by none.
func (n *node) reaches(s service, to netip.AddrPort, from netip.Addr, by []netip.Addr) error {
	for range 2 {
		who, err := n.asks(from, to)
		switch {
		case len(by) == 0 && err == nil:
			return fmt.Errorf("%s answers for %s, which has no endpoint", who, s.name())
		case len(by) > 0 && err != nil:
			return fmt.Errorf("%s at %s from %s: %w", s.name(), to, from, err)
		case len(by) > 0 && !slices.Contains(by, who):
			return fmt.Errorf("%s answers for %s, which has %s", who, s.name(), by)
		}
	}
	return nil
}

// oneTry is how long one call waits for its answer where the caller tries again.
const oneTry = time.Second

// asks calls once, and returns who answers.
func (n *node) asks(from netip.Addr, to netip.AddrPort) (netip.Addr, error) {
	ctx, cancel := context.WithTimeout(context.Background(), oneTry)
	defer cancel()
	conn, err := n.caller("", from, to).Dial(ctx, "tcp4", to)
	if err != nil {
		return netip.Addr{}, err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(oneTry))
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return netip.Addr{}, err
	}
	who, _, _ := strings.Cut(line, " ")
	at, err := netip.ParseAddrPort(who)
	return at.Addr(), err
}

// caller is one that calls from there, by a port that nobody had before: for two minutes the
// kernel sends a new connection from a port where it sent the one before, which may be a
// relay that has gone.
func (n *node) caller(name string, from netip.Addr, to netip.AddrPort) traffic.Caller {
	n.Helper()
	host, err := n.testbed.Host(from)
	if err != nil {
		n.Fatal(err)
	}
	return traffic.From(host, name, from, to)
}

// callers are those from a pod, from the node itself, and from outside, to the virtual
// address and the node port of web.
func (n *node) callers() (all []traffic.Caller) {
	n.Helper()
	for name, from := range map[string]netip.Addr{"pod": pod, "client": client, "node": nodeAddr} {
		for _, to := range []netip.AddrPort{netip.AddrPortFrom(vip, port), netip.AddrPortFrom(nodeAddr, nodePort)} {
			c := n.caller(name, from, to)
			c.UDP = true
			all = append(all, c)
		}
	}
	return all
}
