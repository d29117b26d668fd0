// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/pointsman/pointsman/host/config"
	"github.com/pointsman/pointsman/host/track"
	"github.com/pointsman/pointsman/sdk"
)

// A machine is what the host must know of the machine it runs on.
type machine struct {
	hostname string
	cpus     int
	addrs    []netip.Addr // that others can reach it by
}

// nodeName is this node's name as endpoints have it.
func nodeName(h *config.Host, m machine) string {
	name := h.HostnameOverride
	if name == "" {
		name = m.hostname
	}
	return strings.ToLower(strings.TrimSpace(name))
}

// factsOf are what the settings say of this node. started is when the host did.
func factsOf(h *config.Host, m machine, started time.Time) track.Facts {
	f := track.Facts{
		NodeName:      nodeName(h, m),
		MasqueradeAll: h.Linux.MasqueradeAll,
		MasqueradeBit: uint8(h.Linux.MasqueradeBit), // checked to be 0 to 31
		Conntrack:     conntrackOf(h.Linux.Conntrack, m.cpus),
		ExternalIPs:   h.ExternalIPs.Allow,
		AllowLoopback: h.Source.Files != nil,
		Since:         started,
	}
	if addr, err := netip.ParseAddr(h.BindAddress); err == nil && !addr.IsUnspecified() {
		f.NodeAddrs = []netip.Addr{addr}
	}
	if h.Source.Files != nil { // no API server will name the addresses
		f.OwnAddrs = m.addrs
	}
	f.NodePorts, f.PrimaryNodePorts = h.NodePorts()
	if len(f.NodePorts) == 0 && !f.PrimaryNodePorts {
		f.NodePorts = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
	}
	switch h.DetectLocalMode {
	case config.DetectNodeCIDR:
		f.PodsFromNode = true
	case config.DetectBridgeInterface:
		f.Pods = sdk.Pods{Bridge: h.DetectLocal.BridgeInterface}
	case config.DetectInterfaceNamePrefix:
		f.Pods = sdk.Pods{InterfacePrefix: h.DetectLocal.InterfaceNamePrefix}
	default:
		f.Pods = sdk.Pods{CIDRs: h.DetectLocal.ClusterCIDRs}
	}
	return f
}

// conntrackOf scales the table with the machine, as kube-proxy does.
func conntrackOf(c config.Conntrack, cpus int) sdk.ConntrackLimits {
	limits := sdk.ConntrackLimits{
		TCPEstablishedTimeout: c.TCPEstablishedTimeout,
		TCPCloseWaitTimeout:   c.TCPCloseWaitTimeout,
		TCPBeLiberal:          c.TCPBeLiberal,
		UDPTimeout:            c.UDPTimeout,
		UDPStreamTimeout:      c.UDPStreamTimeout,
	}
	if c.MaxPerCore > 0 {
		limits.Max = uint32(min(max(c.MaxPerCore*cpus, c.Min), 1<<31))
	}
	return limits
}

// ownAddrs are the addresses of this machine that others can reach it by.
func ownAddrs() ([]netip.Addr, error) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	var addrs []netip.Addr
	for _, a := range all {
		prefix, err := netip.ParsePrefix(a.String())
		if err == nil && prefix.Addr().IsGlobalUnicast() {
			addrs = append(addrs, prefix.Addr())
		}
	}
	return addrs, nil
}
