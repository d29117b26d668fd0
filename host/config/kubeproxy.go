// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
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

// fromKubeProxy returns what the fields of a KubeProxyConfiguration say, as fields of a Host. Like kube-proxy it
// ignores empty values. It warns of fields that have no counterpart here.
func (h *Host) fromKubeProxy(theirs map[string]json.RawMessage) (ours map[string]json.RawMessage) {
	mode, detect := cmp.Or(plain(theirs["mode"]), "iptables"), cmp.Or(plain(theirs["detectLocalMode"]), DetectClusterCIDR)
	ours = map[string]json.RawMessage{"externalIPs.nodeAddresses": json.RawMessage(`"` + WarnOfNodeAddresses + `"`)} // kube-proxy serves them
	if mode == "nftables" {                                                                                          // kube-proxy's default in this mode alone
		ours["nodePortAddresses"] = json.RawMessage(`["` + primaryAddresses + `"]`)
	}
	defaults := new(Host).decode([]byte(Defaults))
	for _, field := range slices.Sorted(maps.Keys(theirs)) {
		raw := theirs[field]
		here, counts := fromKubeProxyField(field, mode, detect)
		_, known := misfit(here, nil)
		standard, _ := defaults[here].(json.RawMessage)
		at, option, isOption := strings.Cut(here, ".options.")
		switch {
		case isUnset(field, raw), string(raw) == string(standard):
			continue
		case !counts:
			h.From.Warnings = append(h.From.Warnings, h.Problem(field, fmt.Sprintf("does not count in mode %s with detectLocalMode %s", mode, detect), ""))
			continue
		case !known:
			h.From.Warnings = append(h.From.Warnings, h.Problem(field, "has no counterpart here, and does not count", ""))
			continue
		case isOption: // all options of a plugin are one value
			options := map[string]json.RawMessage{option: raw}
			here = at + ".options"
			_ = json.Unmarshal(ours[here], &options) // adds those before; there may be none
			raw, _ = json.Marshal(options)
		case field == "clusterCIDR":
			raw, _ = json.Marshal(strings.Split(strings.ReplaceAll(plain(raw), " ", ""), ","))
		case field == "hostnameOverride":
			raw, _ = json.Marshal(strings.ToLower(strings.TrimSpace(plain(raw))))
		}
		ours[here] = raw
	}
	return ours
}

// pluginOptions are the fields of kube-proxy that are options of a plugin here.
var pluginOptions = []string{"ipvs.scheduler", "ipvs.strictARP", "ipvs.excludeCIDRs", "ipvs.tcpTimeout", "ipvs.tcpFinTimeout", "ipvs.udpTimeout", "iptables.localhostNodePorts"}

// fromKubeProxyField returns where a field of kube-proxy is here, and whether it counts for kube-proxy with this mode
// and detectLocalMode. A mode's own section counts, but for masquerading, which ipvs takes from the section of
// iptables. So does a mode that has no section, as kube-proxy's userspace mode did. The path that it returns for
// a field that has no counterpart is none of a Host.
func fromKubeProxyField(field, mode, detect string) (here string, counts bool) {
	section, name, _ := strings.Cut(field, ".")
	of := "iptables"
	if mode == "nftables" || mode == "ipvs" && !strings.HasPrefix(name, "masquerade") {
		of = mode
	}
	switch {
	case slices.Contains(pluginOptions, field):
		return "plugins." + section + ".options." + name, true
	case field == "udpIdleTimeout":
		return "plugins.userspace.options.udpIdleTimeout", true
	case name == "syncPeriod" || name == "minSyncPeriod":
		return name, section == of
	case name == "masqueradeAll" || name == "masqueradeBit":
		return "linux." + name, section == of
	case section == "conntrack":
		return "linux." + field, true
	case field == "clusterCIDR":
		return "detectLocal.clusterCIDRs", detect == DetectClusterCIDR
	case section == "detectLocal":
		return field, strings.EqualFold(name, detect)
	case field == "clientConnection.kubeconfig":
		return kubeconfig, true
	}
	return field, true
}

// usual is what kube-proxy writes, by --write-config-to, where no user chose and no counterpart is here. Where there is
// one, it has the same default.
var usual = map[string]string{
	"apiVersion": kubeProxyVersion, "kind": kubeProxyKind,
	"clientConnection.contentType": "application/vnd.kubernetes.protobuf", "logging.flushFrequency": "5s",
}

// isUnset reports whether the value is, or stands for, kube-proxy's default. Where a zero means
// something to kube-proxy, the field is a pointer and null stands for the default.
func isUnset(field string, raw json.RawMessage) bool {
	value := plain(raw)
	if addr, err := netip.ParseAddr(value); field == "bindAddress" && err == nil && addr.IsUnspecified() {
		return true // no address of its own
	}
	pointer := strings.HasPrefix(field, "conntrack.") || field == "oomScoreAdj" || strings.HasSuffix(field, ".masqueradeBit") || field == "iptables.localhostNodePorts"
	return value == usual[field] || value == "" || value == "[]" || !pointer && slices.Contains([]string{"0", "0s", "false"}, value)
}
