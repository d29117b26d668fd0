// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"encoding/json"
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
		switch {
		case here[0] == "" || isUnset(field, raw):
		case refuse(here, json.RawMessage("null")) != "":
			h.From.Warnings = append(h.From.Warnings, h.Problem(field, "has no counterpart here, and does not count", ""))
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

// fromKubeProxyField returns where a field of kube-proxy is here; empty: it has no effect here or, with this
// mode and detectLocalMode, in kube-proxy. A mode's own section counts, but for masquerading, which ipvs
// takes from the section of iptables. So does a mode that has no section, as kube-proxy's userspace mode did.
// The path that it returns for a field that kube-proxy does not have is none of a Host.
func fromKubeProxyField(field, mode, detect string) string {
	section, name, _ := strings.Cut(field, ".")
	periods, masquerade := "iptables", "iptables"
	if mode == "ipvs" || mode == "nftables" {
		periods = mode
	}
	if mode == "nftables" {
		masquerade = mode
	}
	only := func(counts bool, here string) string {
		if counts {
			return here
		}
		return ""
	}
	isMode := section == "iptables" || section == "ipvs" || section == "nftables"
	switch {
	case isMode && (name == "syncPeriod" || name == "minSyncPeriod"):
		return only(section == periods, name)
	case isMode && (name == "masqueradeAll" || name == "masqueradeBit"):
		return only(section == masquerade, "linux."+name)
	case section == "conntrack":
		return "linux." + field
	}
	switch field {
	case "clusterCIDR":
		return only(detect == DetectClusterCIDR, "detectLocal.clusterCIDRs")
	case "detectLocal.bridgeInterface":
		return only(detect == DetectBridgeInterface, field)
	case "detectLocal.interfaceNamePrefix":
		return only(detect == DetectInterfaceNamePrefix, field)
	case "clientConnection.kubeconfig":
		return "source.kubernetes.kubeconfig"
	case "ipvs.scheduler", "ipvs.strictARP", "ipvs.excludeCIDRs", "ipvs.tcpTimeout", "ipvs.tcpFinTimeout", "ipvs.udpTimeout", "iptables.localhostNodePorts":
		return "plugins." + section + ".options." + name
	case "udpIdleTimeout":
		return "plugins.userspace.options.udpIdleTimeout"
	case "mode", "clientConnection.qps", "clientConnection.burst", "hostnameOverride", "bindAddress",
		"healthzBindAddress", "metricsBindAddress", "bindAddressHardFail", "enableProfiling",
		"detectLocalMode", "nodePortAddresses", "oomScoreAdj", "configSyncPeriod", "logging.format":
		return field
	case "apiVersion", "kind", "clientConnection.acceptContentTypes", "clientConnection.contentType", "logging.flushFrequency":
		return "" // it is always protobuf, and each line is written at once
	}
	return kubeProxyKind + "." + field
}

// isUnset reports whether kube-proxy takes the value for "the default". Where a zero means
// something to it, the field is a pointer and the default is null.
func isUnset(field string, raw json.RawMessage) bool {
	value := plain(raw)
	if addr, err := netip.ParseAddr(value); field == "bindAddress" && err == nil && addr.IsUnspecified() {
		return true // no address of its own
	}
	pointer := strings.HasPrefix(field, "conntrack.") || field == "oomScoreAdj" || strings.HasSuffix(field, ".masqueradeBit") || field == "iptables.localhostNodePorts"
	return slices.Contains([]string{"", "[]", "{}"}, value) || !pointer && slices.Contains([]string{"0", "0s", "false"}, value)
}
