// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/pointsman/pointsman/host/config"
	"github.com/pointsman/pointsman/host/reach"
)

// hostOf returns the settings of a config file with these lines.
func hostOf(t *testing.T, lines string) *config.Host {
	t.Helper()
	path := write(t, filepath.Join(t.TempDir(), "host.yaml"), "apiVersion: pointsman.dev/v1alpha1\nkind: HostConfig\n"+lines+"\n", 0o600)
	h, err := config.Load(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestFacts(t *testing.T) {
	m := machine{hostname: "Vm-1 ", cpus: 8, addrs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}
	for _, c := range []struct {
		name, lines string
		shown       func(*config.Host) any
		want        string
	}{
		{"the host name in lower case", "", func(h *config.Host) any { return factsOf(h, m, time.Time{}).NodeName }, "vm-1"},
		{"an override", "hostnameOverride: node-7", func(h *config.Host) any { return factsOf(h, m, time.Time{}).NodeName }, "node-7"},
		{"node ports everywhere", "", func(h *config.Host) any { return factsOf(h, m, time.Time{}).NodePorts }, "[0.0.0.0/0 ::/0]"},
		{"node ports in a range", "nodePortAddresses: [192.0.2.0/24]", func(h *config.Host) any { return factsOf(h, m, time.Time{}).NodePorts }, "[192.0.2.0/24 ::/0]"},
		{"node ports in ranges of both families", "nodePortAddresses: [192.0.2.0/24, \"2001:db8::/64\"]", func(h *config.Host) any { return factsOf(h, m, time.Time{}).NodePorts }, "[192.0.2.0/24 2001:db8::/64]"},
		{"node ports on the primary address", "nodePortAddresses: [primary]", func(h *config.Host) any {
			f := factsOf(h, m, time.Time{})
			return fmt.Sprint(f.NodePorts, f.PrimaryNodePorts)
		}, "[] true"},
		{"pods by range", "detectLocal: {clusterCIDRs: [10.244.0.0/16]}", func(h *config.Host) any { return factsOf(h, m, time.Time{}).Pods.CIDRs }, "[10.244.0.0/16]"},
		{"pods by the Node's range", "detectLocalMode: NodeCIDR", func(h *config.Host) any { return factsOf(h, m, time.Time{}).PodsFromNode }, "true"},
		{"pods by bridge", "detectLocalMode: BridgeInterface\ndetectLocal: {bridgeInterface: cni0}", func(h *config.Host) any { return factsOf(h, m, time.Time{}).Pods.Bridge }, "cni0"},
		{"pods by interface prefix", "detectLocalMode: InterfaceNamePrefix\ndetectLocal: {interfaceNamePrefix: cali}", func(h *config.Host) any { return factsOf(h, m, time.Time{}).Pods.InterfacePrefix }, "cali"},
		{"conntrack by cores", "", func(h *config.Host) any { return factsOf(h, m, time.Time{}).Conntrack.Max }, "262144"},
		{"conntrack, at least", "linux: {conntrack: {maxPerCore: 1}}", func(h *config.Host) any { return factsOf(h, m, time.Time{}).Conntrack.Max }, "131072"},
		{"conntrack of many cores", "linux: {conntrack: {maxPerCore: 200000}}", func(h *config.Host) any { return factsOf(h, m, time.Time{}).Conntrack.Max }, "1048576"},
		{"conntrack, a higher minimum", "linux: {conntrack: {min: 2000000}}", func(h *config.Host) any { return factsOf(h, m, time.Time{}).Conntrack.Max }, "2000000"},
		{"conntrack left alone", "linux: {conntrack: {maxPerCore: 0}}", func(h *config.Host) any { return factsOf(h, m, time.Time{}).Conntrack.Max }, "0"},
		{"the machine's addresses with files", "source: {files: {path: .}}", func(h *config.Host) any {
			f := factsOf(h, m, time.Time{})
			return fmt.Sprint(f.OwnAddrs, f.AllowLoopback)
		}, "[192.0.2.1] true"},
		{"no addresses with a cluster", "", func(h *config.Host) any {
			f := factsOf(h, m, time.Time{})
			return fmt.Sprint(f.OwnAddrs, f.AllowLoopback)
		}, "[] false"},
		{"bindAddress", "bindAddress: 192.0.2.7", func(h *config.Host) any { return factsOf(h, m, time.Time{}).NodeAddrs }, "[192.0.2.7]"},
		{"node addresses as external IPs", "", func(h *config.Host) any { return factsOf(h, m, time.Time{}).NodeAddresses }, fmt.Sprint(reach.RefuseNodeAddresses)},
		{"with a warning", "externalIPs: {nodeAddresses: warn}", func(h *config.Host) any { return factsOf(h, m, time.Time{}).NodeAddresses }, fmt.Sprint(reach.WarnOfNodeAddresses)},
		{"without a warning", "externalIPs: {nodeAddresses: serve}", func(h *config.Host) any { return factsOf(h, m, time.Time{}).NodeAddresses }, fmt.Sprint(reach.ServeNodeAddresses)},
		{"bindAddress of all addresses", "bindAddress: 0.0.0.0", func(h *config.Host) any { return factsOf(h, m, time.Time{}).NodeAddrs }, "[]"},
	} {
		if got := fmt.Sprint(c.shown(hostOf(t, c.lines))); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func TestOnlineCPUs(t *testing.T) {
	for list, want := range map[string]int{"0-3,6\n": 5, "0\n": 1, "": runtime.NumCPU(), "many": runtime.NumCPU()} {
		if got := onlineCPUs(write(t, filepath.Join(t.TempDir(), "online"), list, 0o600)); got != want {
			t.Errorf("%q: %d, want %d", list, got, want)
		}
	}
	if got := onlineCPUs(t.TempDir()); got != runtime.NumCPU() {
		t.Errorf("without a list: %d", got)
	}
}
