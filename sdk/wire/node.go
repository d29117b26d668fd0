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
