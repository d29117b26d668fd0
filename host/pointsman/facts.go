// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/cpuset"

	"github.com/pointsman/pointsman/host/config"
	"github.com/pointsman/pointsman/host/reach"
	"github.com/pointsman/pointsman/host/track"
	"github.com/pointsman/pointsman/sdk"
)

// A machine is the machine on which the host runs.
type machine struct {
	hostname string
	cpus     int
	addrs    []netip.Addr // reachable by other machines
}

func thisMachine() (machine, error) {
	name, err := os.Hostname()
	if err != nil {
		return machine{}, fmt.Errorf("this machine's name: %w", err)
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return machine{}, fmt.Errorf("this machine's addresses: %w", err)
	}
	m := machine{hostname: name, cpus: onlineCPUs("/sys/devices/system/cpu/online")}
	for _, a := range addrs {
		prefix, err := netip.ParsePrefix(a.String())
		if err == nil && prefix.Addr().IsGlobalUnicast() {
			m.addrs = append(m.addrs, prefix.Addr())
		}
	}
	return m, nil
}

// onlineCPUs returns the number of CPUs in the list in a file, such as "0-3,6". Without the file it
// returns the number that this process may use, which is lower if a service manager or container
// pins it.
func onlineCPUs(file string) int {
	list, _ := os.ReadFile(file)
	if set, err := cpuset.Parse(strings.TrimSpace(string(list))); err == nil && set.Size() > 0 {
		return set.Size()
	}
	return runtime.NumCPU()
}

// nodeName returns the name of this node in Kubernetes.
func nodeName(h *config.Host, m machine) string {
	return strings.ToLower(strings.TrimSpace(cmp.Or(h.HostnameOverride, m.hostname)))
}

// factsOf returns the tracker's facts about this node. started is the start of the host.
func factsOf(h *config.Host, m machine, started time.Time) track.Facts {
	f := track.Facts{
		NodeName:      nodeName(h, m),
		MasqueradeAll: h.Linux.MasqueradeAll,
		MasqueradeBit: uint8(h.Linux.MasqueradeBit), // checked to be 0 to 31
		Conntrack:     conntrackOf(h, m.cpus),
		ExternalIPs:   h.ExternalIPs.Allow,
		NodeAddresses: nodeAddresses[h.ExternalIPs.NodeAddresses],
		AllowLoopback: h.Source.Files != nil,
		Since:         started,
	}
	if addr, err := netip.ParseAddr(h.BindAddress); err == nil && !addr.IsUnspecified() {
		f.NodeAddrs = []netip.Addr{addr}
	}
	if h.Source.Files != nil { // no Node object has the addresses
		f.OwnAddrs = m.addrs
	}
	f.NodePorts, f.PrimaryNodePorts = h.NodePorts()
	if !f.PrimaryNodePorts {
		f.NodePorts = append(f.NodePorts, familiesNotIn(f.NodePorts)...)
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

var nodeAddresses = map[string]reach.NodeAddresses{
	"refuse": reach.RefuseNodeAddresses,
	"warn":   reach.WarnOfNodeAddresses,
	"serve":  reach.ServeNodeAddresses,
}

// familiesNotIn returns the range of all addresses for each IP family that ranges lacks: a setting
// without ranges of a family does not restrict that family, as with kube-proxy.
func familiesNotIn(ranges []netip.Prefix) []netip.Prefix {
	all := []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
	return slices.DeleteFunc(all, func(p netip.Prefix) bool {
		return slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return r.Addr().Is4() == p.Addr().Is4() })
	})
}

// maxByCores limits the connections that maxPerCore asks for on machines with many CPUs.
const maxByCores = 1 << 20

// conntrackOf returns the limits of conntrack for a number of CPUs, like kube-proxy.
func conntrackOf(h *config.Host, cpus int) sdk.ConntrackLimits {
	c := h.Linux.Conntrack
	limits := sdk.ConntrackLimits{
		TCPEstablishedTimeout: c.TCPEstablishedTimeout.Duration,
		TCPCloseWaitTimeout:   c.TCPCloseWaitTimeout.Duration,
		TCPBeLiberal:          c.TCPBeLiberal,
		UDPTimeout:            c.UDPTimeout.Duration,
		UDPStreamTimeout:      c.UDPStreamTimeout.Duration,
	}
	if c.MaxPerCore > 0 {
		limits.Max = uint32(min(max(min(c.MaxPerCore*cpus, maxByCores), c.Min), 1<<31))
	}
	return limits
}
