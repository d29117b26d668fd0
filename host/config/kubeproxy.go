// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// kube-proxy's own kind of file. A node that changes over to Pointsman can begin
// with the one it has.
const (
	kubeProxyVersion = "kubeproxy.config.k8s.io/v1alpha1"
	kubeProxyKind    = "KubeProxyConfiguration"
)

// fromKubeProxy returns what root, a KubeProxyConfiguration, says as a HostConfig. Like kube-proxy it
// ignores empty values. It warns of fields that have no counterpart here.
func (h *Host) fromKubeProxy(root map[string]json.RawMessage) (host map[string]json.RawMessage) {
	mode, detect := cmp.Or(plain(root["mode"]), "iptables"), cmp.Or(plain(root["detectLocalMode"]), DetectClusterCIDR)
	tree := make(map[string]any)
	put(tree, []string{"apiVersion"}, APIVersion)
	put(tree, []string{"kind"}, Kind)
	put(tree, []string{"externalIPs", "nodeAddresses"}, WarnOfNodeAddresses) // kube-proxy serves them
	if mode == "nftables" {                                                  // kube-proxy's default in this mode alone
		put(tree, []string{"nodePortAddresses"}, []string{primaryAddresses})
	}
	eachLeaf(nil, root, func(keys []string, raw json.RawMessage) {
		field := strings.Join(keys, ".")
		here := strings.Split(fromKubeProxyField(field, mode, detect), ".")
		note := func(why string) { h.From.Warnings = append(h.From.Warnings, h.Problem(field, why, "")) }
		switch {
		case isUnset(field, raw):
		case here[0] == "":
			note(fmt.Sprintf("does not count in mode %s with detectLocalMode %s", mode, detect))
		case refuse(here, json.RawMessage("null")) != "":
			note("has no counterpart here, and does not count")
		case field == "clusterCIDR":
			put(tree, here, strings.Split(strings.ReplaceAll(plain(raw), " ", ""), ","))
		case field == "hostnameOverride":
			put(tree, here, strings.ToLower(strings.TrimSpace(plain(raw))))
		default:
			put(tree, here, raw)
		}
	})
	text, _ := json.Marshal(tree) // of texts and JSON, in maps
	_ = json.Unmarshal(text, &host)
	return host
}

// fromKubeProxyField returns where a field of kube-proxy is here; empty: kube-proxy ignores it with this mode
// and detectLocalMode. A mode's own section counts, but for masquerading, which ipvs
// takes from the section of iptables. So does a mode that has no section, as kube-proxy's userspace mode did.
// The path that it returns for a field that kube-proxy does not have is none of a Host.
func fromKubeProxyField(field, mode, detect string) string {
	section, name, _ := strings.Cut(field, ".")
	masquerade := name == "masqueradeAll" || name == "masqueradeBit"
	counts := "iptables"
	if mode == "nftables" || mode == "ipvs" && !masquerade {
		counts = mode
	}
	here, chosen := kubeProxyKind+"."+field, true
	switch field {
	case "iptables.syncPeriod", "iptables.minSyncPeriod", "ipvs.syncPeriod", "ipvs.minSyncPeriod", "nftables.syncPeriod", "nftables.minSyncPeriod":
		here, chosen = name, section == counts
	case "iptables.masqueradeAll", "iptables.masqueradeBit", "nftables.masqueradeAll", "nftables.masqueradeBit":
		here, chosen = "linux."+name, section == counts
	case "clusterCIDR":
		here, chosen = "detectLocal.clusterCIDRs", detect == DetectClusterCIDR
	case "detectLocal.bridgeInterface":
		here, chosen = field, detect == DetectBridgeInterface
	case "detectLocal.interfaceNamePrefix":
		here, chosen = field, detect == DetectInterfaceNamePrefix
	case "clientConnection.kubeconfig":
		here = "source.kubernetes.kubeconfig"
	case "conntrack.maxPerCore", "conntrack.min", "conntrack.tcpEstablishedTimeout", "conntrack.tcpCloseWaitTimeout",
		"conntrack.tcpBeLiberal", "conntrack.udpTimeout", "conntrack.udpStreamTimeout":
		here = "linux." + field
	case "ipvs.scheduler", "ipvs.strictARP", "ipvs.excludeCIDRs", "ipvs.tcpTimeout", "ipvs.tcpFinTimeout", "ipvs.udpTimeout", "iptables.localhostNodePorts":
		here = "plugins." + section + ".options." + name
	case "udpIdleTimeout":
		here = "plugins.userspace.options.udpIdleTimeout"
	case "mode", "clientConnection.qps", "clientConnection.burst", "hostnameOverride", "bindAddress",
		"healthzBindAddress", "metricsBindAddress", "bindAddressHardFail", "enableProfiling",
		"detectLocalMode", "nodePortAddresses", "oomScoreAdj", "configSyncPeriod", "logging.format":
		here = field
	}
	if !chosen {
		return ""
	}
	return here
}

// usual is what kube-proxy writes, by --write-config-to, where no user chose. Where there is a counterpart
// here, it has the same default.
var usual = map[string]string{
	"apiVersion": kubeProxyVersion, "kind": kubeProxyKind,
	"clientConnection.contentType": "application/vnd.kubernetes.protobuf",
	"logging.flushFrequency":       "5s",
	"iptables.syncPeriod":          "30s",
	"iptables.minSyncPeriod":       "1s",
	"iptables.masqueradeBit":       "14",
	"ipvs.syncPeriod":              "30s",
	"nftables.syncPeriod":          "30s",
	"nftables.minSyncPeriod":       "1s",
	"nftables.masqueradeBit":       "14",
}

// isUnset reports whether the value is, or stands for, kube-proxy's default. Where a zero means
// something to kube-proxy, the field is a pointer and null stands for the default.
func isUnset(field string, raw json.RawMessage) bool {
	value := plain(raw)
	if value == usual[field] {
		return true
	}
	if addr, err := netip.ParseAddr(value); field == "bindAddress" && err == nil && addr.IsUnspecified() {
		return true // no address of its own
	}
	pointer := strings.HasPrefix(field, "conntrack.") || field == "oomScoreAdj" || strings.HasSuffix(field, ".masqueradeBit") || field == "iptables.localhostNodePorts"
	return slices.Contains([]string{"", "[]", "{}"}, value) || !pointer && slices.Contains([]string{"0", "0s", "false"}, value)
}
