// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// fromKubeProxy translates the fields of a KubeProxyConfiguration to fields of a Host, so that a node that changes over
// to Pointsman can begin with the file that it has. Like kube-proxy it ignores empty
// values. It warns of fields that have no effect here.
func (h *Host) fromKubeProxy(theirs map[string]json.RawMessage) (ours map[string]json.RawMessage) {
	mode, detect := cmp.Or(unquote(theirs["mode"]), "iptables"), cmp.Or(unquote(theirs["detectLocalMode"]), DetectClusterCIDR)
	ours = map[string]json.RawMessage{"externalIPs.nodeAddresses": json.RawMessage(`"warn"`)} // kube-proxy serves them
	if mode == "nftables" {                                                                   // kube-proxy's default in this mode alone
		ours["nodePortAddresses"] = json.RawMessage(`["primary"]`)
	}
	defaults := new(Host).decode([]byte(Defaults))
	for _, field := range slices.Sorted(maps.Keys(theirs)) {
		raw := theirs[field]
		here, counts := fromKubeProxyField(field, mode, detect)
		_, known := checkValue(here, nil)
		at, option, isOption := strings.Cut(here, ".options.")
		switch {
		case field == "apiVersion", field == "kind", isUnset(field, raw), string(raw) == string(defaults[here]):
			continue
		case !known || !counts:
			h.From.Warnings = append(h.From.Warnings, h.Problem(field, fmt.Sprintf("has no effect here in mode %s with detectLocalMode %s", mode, detect), ""))
			continue
		case isOption: // the options of a plugin are one value
			options := map[string]json.RawMessage{option: raw}
			here = at + ".options"
			_ = json.Unmarshal(ours[here], &options) // adds the options found before, if any
			raw, _ = json.Marshal(options)
		case field == "clusterCIDR":
			raw, _ = json.Marshal(strings.Split(strings.ReplaceAll(unquote(raw), " ", ""), ","))
		case field == "hostnameOverride":
			raw, _ = json.Marshal(strings.ToLower(strings.TrimSpace(unquote(raw))))
		}
		ours[here] = raw
	}
	return ours
}

// renamed has the Host fields for fields of kube-proxy with another path. Some are options of a plugin.
var renamed = map[string]string{
	"clusterCIDR": "detectLocal.clusterCIDRs", "clientConnection.kubeconfig": "source.kubernetes.kubeconfig",
	"iptables.localhostNodePorts": "plugins.iptables.options.localhostNodePorts", "udpIdleTimeout": "plugins.userspace.options.udpIdleTimeout",
	"ipvs.scheduler": "plugins.ipvs.options.scheduler", "ipvs.strictARP": "plugins.ipvs.options.strictARP", "ipvs.excludeCIDRs": "plugins.ipvs.options.excludeCIDRs",
	"ipvs.tcpTimeout": "plugins.ipvs.options.tcpTimeout", "ipvs.tcpFinTimeout": "plugins.ipvs.options.tcpFinTimeout", "ipvs.udpTimeout": "plugins.ipvs.options.udpTimeout",
}

// fromKubeProxyField returns the path of the Host field for a field of kube-proxy, and reports whether kube-proxy uses
// the field with this mode and detectLocalMode. If there is no such Host field, checkValue does not know the path that
// it returns.
//
// kube-proxy uses the section of its mode, except that ipvs uses the masquerade fields in section iptables. A mode
// without a section, such as the former userspace mode, uses section iptables.
func fromKubeProxyField(field, mode, detect string) (here string, used bool) {
	section, name, _ := strings.Cut(field, ".")
	of := "iptables"
	if mode == "nftables" || mode == "ipvs" && !strings.HasPrefix(name, "masquerade") {
		of = mode
	}
	switch {
	case renamed[field] != "":
		return renamed[field], field != "clusterCIDR" || detect == DetectClusterCIDR
	case name == "syncPeriod" || name == "minSyncPeriod":
		return name, section == of
	case name == "masqueradeAll" || name == "masqueradeBit":
		return "linux." + name, section == of
	case section == "conntrack":
		return "linux." + field, true
	}
	return field, section != "detectLocal" || strings.EqualFold(name, detect)
}

// writtenDefaults has the defaults that kube-proxy --write-config-to writes, for fields of kube-proxy without a Host
// field. The defaults of Host fields are the same as kube-proxy's.
var writtenDefaults = map[string]string{
	"clientConnection.contentType": "application/vnd.kubernetes.protobuf", "logging.flushFrequency": "5s",
}

// isUnset reports whether the value is kube-proxy's default, or stands for it. A field whose zero has a meaning of its own
// is a pointer in kube-proxy, and null stands for the default.
func isUnset(field string, raw json.RawMessage) bool {
	value := unquote(raw)
	pointer := strings.HasPrefix(field, "conntrack.") || field == "oomScoreAdj" || strings.HasSuffix(field, ".masqueradeBit") || field == "iptables.localhostNodePorts"
	return value == writtenDefaults[field] || field == "bindAddress" && (value == "0.0.0.0" || value == "::") || value == "" || value == "[]" || !pointer && slices.Contains([]string{"0", "0s", "false"}, value)
}
