// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/pointsman/pointsman/sdk"
	pb "github.com/pointsman/pointsman/sdk/wire/dataplanepb"
)

// Each pair of functions below is one value's way out and its way in. A value
// that this version does not know survives both, so that Service.Check refuses
// it by name.

func encodeName(n sdk.Name) *pb.Name {
	return &pb.Name{
		Namespace: n.Namespace,
		Service:   n.Service,
		Port:      n.Port,
		Protocol:  pb.Protocol(n.Protocol),
		Family:    pb.Family(n.Family),
	}
}

func decodeName(n *pb.Name) sdk.Name {
	return sdk.Name{
		Namespace: n.GetNamespace(),
		Service:   n.GetService(),
		Port:      n.GetPort(),
		Protocol:  sdk.Protocol(enum(int32(n.GetProtocol()))),
		Family:    sdk.Family(enum(int32(n.GetFamily()))),
	}
}

// checkName reports why n cannot travel, if so.
func checkName(n sdk.Name) error {
	if !utf8All(n.Namespace, n.Service, n.Port) {
		return fmt.Errorf("name %q is not UTF-8", n)
	}
	return nil
}

func encodeService(s *sdk.Service) (*pb.Service, error) {
	if err := checkName(s.Name); err != nil {
		return nil, err
	}
	for k, v := range s.Hints {
		if !utf8All(k, v) {
			return nil, fmt.Errorf("hint %q is not UTF-8", k)
		}
	}
	var c conversion
	out := &pb.Service{
		Name:          encodeName(s.Name),
		Frontends:     list(&c, "frontend", s.Frontends, encodeFrontend),
		Cluster:       field(&c, "cluster", s.Cluster, packEndpoints),
		Local:         field(&c, "local", s.Local, packEndpoints),
		Serving:       field(&c, "serving", s.Serving, packAddrs),
		AffinityNanos: int64(s.Affinity),
		HealthPort:    uint32(s.HealthPort),
		Hints:         s.Hints,
	}
	return out, c.err
}

// decodeService returns the name also with an error, so that the failure can name the Service.
func decodeService(s *pb.Service) (sdk.Service, error) {
	var c conversion
	out := sdk.Service{
		Name:       decodeName(s.GetName()),
		Frontends:  list(&c, "frontend", s.GetFrontends(), decodeFrontend),
		Cluster:    field(&c, "cluster", s.GetCluster(), unpackEndpoints),
		Local:      field(&c, "local", s.GetLocal(), unpackEndpoints),
		Serving:    field(&c, "serving", s.GetServing(), unpackAddrs),
		Affinity:   time.Duration(s.GetAffinityNanos()),
		HealthPort: field(&c, "health port", s.GetHealthPort(), port),
		Hints:      s.GetHints(),
	}
	return out, c.err
}

func encodeFrontend(f sdk.Frontend) (*pb.Frontend, error) {
	var c conversion
	out := &pb.Frontend{
		Kind:    pb.Kind(f.Kind),
		Addr:    field(&c, "address", f.Addr.Addr(), encodeAddr),
		Port:    uint32(f.Addr.Port()),
		Policy:  pb.Policy(f.Policy),
		Sources: list(&c, "sources", f.Sources, encodePrefix),
	}
	return out, c.err
}

func decodeFrontend(f *pb.Frontend) (sdk.Frontend, error) {
	var c conversion
	out := sdk.Frontend{
		Kind:    sdk.Kind(enum(int32(f.GetKind()))),
		Addr:    netip.AddrPortFrom(field(&c, "address", f.GetAddr(), decodeAddr), field(&c, "port", f.GetPort(), port)),
		Policy:  sdk.Policy(enum(int32(f.GetPolicy()))),
		Sources: list(&c, "sources", f.GetSources(), decodePrefix),
	}
	return out, c.err
}

func port(p uint32) (uint16, error) {
	if p > 0xffff {
		return 0, fmt.Errorf("a port of %d", p)
	}
	return uint16(p), nil
}

func encodeNode(n *sdk.Node) (*pb.Node, error) {
	if n == nil {
		return nil, nil
	}
	if !utf8All(n.Name, n.Pods.Bridge, n.Pods.InterfacePrefix) {
		return nil, fmt.Errorf("node %q is not UTF-8", n.Name)
	}
	var c conversion
	out := &pb.Node{
		Name:      n.Name,
		Addrs:     list(&c, "addresses", n.Addrs, encodeAddr),
		NodePorts: list(&c, "node ports", n.NodePorts, encodePrefix),
		Pods: &pb.Pods{
			Cidrs:           list(&c, "pods", n.Pods.CIDRs, encodePrefix),
			Bridge:          n.Pods.Bridge,
			InterfacePrefix: n.Pods.InterfacePrefix,
		},
		MasqueradeAll: n.MasqueradeAll,
		MasqueradeBit: uint32(n.MasqueradeBit),
		ServiceCidrs:  list(&c, "service ranges", n.ServiceCIDRs, encodePrefix),
		Conntrack:     encodeConntrack(n.Conntrack),
		PodCidrs:      list(&c, "ranges of pods", n.PodCIDRs, encodePrefix),
	}
	if c.err != nil {
		return nil, fmt.Errorf("node %q: %w", n.Name, c.err)
	}
	return out, nil
}

func decodeNode(n *pb.Node) (*sdk.Node, error) {
	if n == nil {
		return nil, nil
	}
	var c conversion
	out := &sdk.Node{
		Name:      n.GetName(),
		Addrs:     list(&c, "addresses", n.GetAddrs(), decodeAddr),
		NodePorts: list(&c, "node ports", n.GetNodePorts(), decodePrefix),
		Pods: sdk.Pods{
			CIDRs:           list(&c, "pods", n.GetPods().GetCidrs(), decodePrefix),
			Bridge:          n.GetPods().GetBridge(),
			InterfacePrefix: n.GetPods().GetInterfacePrefix(),
		},
		MasqueradeAll: n.GetMasqueradeAll(),
		MasqueradeBit: field(&c, "masquerade bit", n.GetMasqueradeBit(), decodeBit),
		ServiceCIDRs:  list(&c, "service ranges", n.GetServiceCidrs(), decodePrefix),
		Conntrack:     decodeConntrack(n.GetConntrack()),
		PodCIDRs:      list(&c, "ranges of pods", n.GetPodCidrs(), decodePrefix),
	}
	if c.err != nil {
		return nil, fmt.Errorf("node %q: %w", n.GetName(), c.err)
	}
	return out, nil
}

func decodeBit(b uint32) (uint8, error) {
	if b > 31 {
		return 0, fmt.Errorf("%d is none of 32", b)
	}
	return uint8(b), nil
}

func encodeConntrack(c sdk.ConntrackLimits) *pb.ConntrackLimits {
	return &pb.ConntrackLimits{
		Max:                        c.Max,
		TcpEstablishedTimeoutNanos: int64(c.TCPEstablishedTimeout),
		TcpCloseWaitTimeoutNanos:   int64(c.TCPCloseWaitTimeout),
		TcpBeLiberal:               c.TCPBeLiberal,
		UdpTimeoutNanos:            int64(c.UDPTimeout),
		UdpStreamTimeoutNanos:      int64(c.UDPStreamTimeout),
	}
}

func decodeConntrack(c *pb.ConntrackLimits) sdk.ConntrackLimits {
	return sdk.ConntrackLimits{
		Max:                   c.GetMax(),
		TCPEstablishedTimeout: time.Duration(c.GetTcpEstablishedTimeoutNanos()),
		TCPCloseWaitTimeout:   time.Duration(c.GetTcpCloseWaitTimeoutNanos()),
		TCPBeLiberal:          c.GetTcpBeLiberal(),
		UDPTimeout:            time.Duration(c.GetUdpTimeoutNanos()),
		UDPStreamTimeout:      time.Duration(c.GetUdpStreamTimeoutNanos()),
	}
}

func encodeServed(s sdk.Served) (*pb.Served, error) {
	endpoints := make([]sdk.Endpoint, len(s.Endpoints))
	for i, addr := range s.Endpoints {
		endpoints[i].Addr = addr
	}
	c := conversion{checkName(s.Name)}
	out := &pb.Served{
		Name:      encodeName(s.Name),
		Frontend:  field(&c, "frontend", s.Frontend, encodeFrontend),
		Endpoints: field(&c, "endpoints", endpoints, packEndpoints),
	}
	if c.err != nil {
		return nil, fmt.Errorf("%s: %w", s.Name, c.err)
	}
	return out, nil
}

func decodeServed(s *pb.Served) (sdk.Served, error) {
	var c conversion
	out := sdk.Served{Name: decodeName(s.GetName()), Frontend: field(&c, "frontend", s.GetFrontend(), decodeFrontend)}
	for _, ep := range field(&c, "endpoints", s.GetEndpoints(), unpackEndpoints) {
		out.Endpoints = append(out.Endpoints, ep.Addr)
	}
	return out, c.err
}

func encodeAffinityEntry(s sdk.AffinityEntry) (*pb.AffinityEntry, error) {
	c := conversion{checkName(s.Name)}
	out := &pb.AffinityEntry{
		Name:         encodeName(s.Name),
		Client:       field(&c, "client", s.Client, encodeAddr),
		Endpoint:     field(&c, "endpoint", s.Endpoint.Addr(), encodeAddr),
		EndpointPort: uint32(s.Endpoint.Port()),
		LeftNanos:    int64(s.Left),
	}
	if c.err != nil {
		return nil, fmt.Errorf("client %s of %s: %w", s.Client, s.Name, c.err)
	}
	return out, nil
}

func decodeAffinityEntry(s *pb.AffinityEntry) (sdk.AffinityEntry, error) {
	var c conversion
	out := sdk.AffinityEntry{
		Name:     decodeName(s.GetName()),
		Client:   field(&c, "client", s.GetClient(), decodeAddr),
		Endpoint: netip.AddrPortFrom(field(&c, "endpoint", s.GetEndpoint(), decodeAddr), field(&c, "port", s.GetEndpointPort(), port)),
		Left:     time.Duration(s.GetLeftNanos()),
	}
	return out, c.err
}
