// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"time"

	"github.com/pointsman/pointsman/sdk"
	pb "github.com/pointsman/pointsman/sdk/wire/dataplanepb"
)

func encodeNode(n *sdk.Node) (*pb.Node, error) {
	if n == nil {
		return nil, nil
	}
	if !utf8All(n.Name, n.Pods.Bridge, n.Pods.InterfacePrefix) {
		return nil, fmt.Errorf("node %q is not UTF-8", n.Name)
	}
	out := &pb.Node{
		Name:          n.Name,
		Pods:          &pb.Pods{Bridge: n.Pods.Bridge, InterfacePrefix: n.Pods.InterfacePrefix},
		MasqueradeAll: n.MasqueradeAll,
		MasqueradeBit: uint32(n.MasqueradeBit),
		Conntrack:     encodeConntrack(n.Conntrack),
	}
	var err error
	if out.Addrs, err = encodeAddrs(n.Addrs); err != nil {
		return nil, fmt.Errorf("addresses of node %q: %w", n.Name, err)
	}
	if out.NodePorts, err = encodePrefixes(n.NodePorts); err != nil {
		return nil, fmt.Errorf("node ports of node %q: %w", n.Name, err)
	}
	if out.Pods.Cidrs, err = encodePrefixes(n.Pods.CIDRs); err != nil {
		return nil, fmt.Errorf("pods of node %q: %w", n.Name, err)
	}
	if out.ServiceCidrs, err = encodePrefixes(n.ServiceCIDRs); err != nil {
		return nil, fmt.Errorf("service ranges of node %q: %w", n.Name, err)
	}
	return out, nil
}

func decodeNode(n *pb.Node) (*sdk.Node, error) {
	if n == nil {
		return nil, nil
	}
	out := &sdk.Node{
		Name:          n.GetName(),
		Pods:          sdk.Pods{Bridge: n.GetPods().GetBridge(), InterfacePrefix: n.GetPods().GetInterfacePrefix()},
		MasqueradeAll: n.GetMasqueradeAll(),
		MasqueradeBit: uint8(n.GetMasqueradeBit()),
		Conntrack:     decodeConntrack(n.GetConntrack()),
	}
	if n.GetMasqueradeBit() > 31 {
		return nil, fmt.Errorf("node %q: masquerade bit %d is none of 32", n.GetName(), n.GetMasqueradeBit())
	}
	var err error
	if out.Addrs, err = decodeAddrs(n.GetAddrs()); err != nil {
		return nil, fmt.Errorf("addresses of node %q: %w", n.GetName(), err)
	}
	if out.NodePorts, err = decodePrefixes(n.GetNodePorts()); err != nil {
		return nil, fmt.Errorf("node ports of node %q: %w", n.GetName(), err)
	}
	if out.Pods.CIDRs, err = decodePrefixes(n.GetPods().GetCidrs()); err != nil {
		return nil, fmt.Errorf("pods of node %q: %w", n.GetName(), err)
	}
	if out.ServiceCIDRs, err = decodePrefixes(n.GetServiceCidrs()); err != nil {
		return nil, fmt.Errorf("service ranges of node %q: %w", n.GetName(), err)
	}
	return out, nil
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
