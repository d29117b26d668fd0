// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding/json"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// kube-proxy's own kind of file. A node that changes over to Pointsman can begin
// with the one it has.
const (
	kubeProxyVersion = "kubeproxy.config.k8s.io/v1alpha1"
	kubeProxyKind    = "KubeProxyConfiguration"
)

func isKubeProxy(root *yaml.Node) bool {
	version, kind := child(root, "apiVersion"), child(root, "kind")
	return version != nil && kind != nil && kind.Value == kubeProxyKind && version.Value == kubeProxyVersion
}

// jsonOf returns what root says as JSON; nil: JSON cannot say it.
func jsonOf(root *yaml.Node) json.RawMessage {
	var tree any
	if err := root.Decode(&tree); err != nil {
		return nil
	}
	text, err := json.Marshal(tree)
	if err != nil {
		return nil
	}
	return text
}

// fromKubeProxy says what root, a KubeProxyConfiguration, says in a HostConfig's
// words. Every value keeps its line. Like kube-proxy it takes an empty value for
// none, and what has no counterpart here is warned of.
func (r *reader) fromKubeProxy(root *yaml.Node) *yaml.Node {
	host := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Line: root.Line, Column: root.Column}
	plant(host, []string{"apiVersion"}, textAt(APIVersion, child(root, "apiVersion")))
	plant(host, []string{"kind"}, textAt(Kind, child(root, "kind")))
	mode := valueOr(root, "mode", "iptables")
	moves := kubeProxyMoves(mode, valueOr(root, "detectLocalMode", DetectClusterCIDR))
	r.eachLeaf(root, "", func(path string, n *yaml.Node) {
		m, known := moves[path]
		switch {
		case path == "apiVersion" || path == "kind" || isNull(n) || isUnset(path, n):
		case !known && isUnmoved(path):
			r.warnings = append(r.warnings, Problem{Where: r.at(n), Field: path, Why: "has no counterpart here, and does not count"})
		case !known:
			meant := DidYouMean(path, slices.Concat(slices.Collect(maps.Keys(moves)), unmoved))
			r.warnings = append(r.warnings, Problem{Where: r.at(n), Field: path, Why: "is no field of a " + kubeProxyKind + ", and does not count", Try: meant})
		case m.idle == "":
			plant(host, strings.Split(m.to, "."), translated(path, n))
		case n.Value != usual[path]:
			r.warnings = append(r.warnings, Problem{Where: r.at(n), Field: path, Why: m.idle})
		}
	})
	if mode == "nftables" && child(host, "nodePortAddresses") == nil { // kube-proxy's default in this mode alone
		plant(host, []string{"nodePortAddresses"}, listAt([]string{primaryAddresses}, child(root, "mode")))
	}
	plant(host, []string{"externalIPs", "nodeAddresses"}, textAt(WarnOfNodeAddresses, child(root, "kind"))) // it serves them
	return host
}

// eachLeaf visits everything below n that has a value.
func (r *reader) eachLeaf(n *yaml.Node, path string, visit func(path string, n *yaml.Node)) {
	r.pairs(n, path, func(key, value *yaml.Node) {
		below := join(path, key.Value)
		if value.Kind == yaml.MappingNode {
			r.eachLeaf(value, below, visit)
			return
		}
		visit(below, value)
	})
}

// valueOr returns the text of a field of root, or what kube-proxy takes instead.
func valueOr(root *yaml.Node, name, otherwise string) string {
	if n := child(root, name); n != nil && n.Value != "" && !isNull(n) {
		return n.Value
	}
	return otherwise
}

// A move is where one of kube-proxy's fields stands here, or why it does not count.
type move struct{ to, idle string }

// kubeProxyMoves says what becomes of each of kube-proxy's fields. The section of a
// mode counts in that mode, but for masquerading, which ipvs takes from iptables'; a
// mode that has none goes by iptables', as kube-proxy's userspace mode did. Of the ways
// to tell pods from others only the chosen one counts.
func kubeProxyMoves(mode, detect string) map[string]move {
	unchosen := ": detectLocalMode is " + detect
	moves := map[string]move{
		"clientConnection.kubeconfig":         {to: "source.kubernetes.kubeconfig"},
		"clientConnection.acceptContentTypes": {idle: "does not count: it is always protobuf"},
		"clientConnection.contentType":        {idle: "does not count: it is always protobuf"},
		"clusterCIDR":                         only(detect == DetectClusterCIDR, "detectLocal.clusterCIDRs", unchosen),
		"detectLocal.bridgeInterface":         only(detect == DetectBridgeInterface, "detectLocal.bridgeInterface", unchosen),
		"detectLocal.interfaceNamePrefix":     only(detect == DetectInterfaceNamePrefix, "detectLocal.interfaceNamePrefix", unchosen),
		"udpIdleTimeout":                      {to: "plugins.userspace.options.udpIdleTimeout"},
		"iptables.localhostNodePorts":         {to: "plugins.iptables.options.localhostNodePorts"},
		"logging.format":                      {to: "logging.format"},
		"logging.flushFrequency":              {idle: "does not count: each line is written at once"},
	}
	for _, same := range []string{
		"mode", "clientConnection.qps", "clientConnection.burst", "hostnameOverride", "bindAddress",
		"healthzBindAddress", "metricsBindAddress", "bindAddressHardFail", "enableProfiling",
		"detectLocalMode", "nodePortAddresses", "oomScoreAdj", "configSyncPeriod",
	} {
		moves[same] = move{to: same}
	}
	for _, name := range []string{"maxPerCore", "min", "tcpEstablishedTimeout", "tcpCloseWaitTimeout", "tcpBeLiberal", "udpTimeout", "udpStreamTimeout"} {
		moves["conntrack."+name] = move{to: "linux.conntrack." + name}
	}
	for _, name := range []string{"scheduler", "strictARP", "excludeCIDRs", "tcpTimeout", "tcpFinTimeout", "udpTimeout"} {
		moves["ipvs."+name] = move{to: "plugins.ipvs.options." + name}
	}
	periods, masquerade := mode, mode
	if mode != "ipvs" && mode != "nftables" {
		periods = "iptables"
	}
	if mode != "nftables" {
		masquerade = "iptables"
	}
	for _, section := range []string{"iptables", "ipvs", "nftables"} {
		for _, name := range []string{"syncPeriod", "minSyncPeriod"} {
			moves[section+"."+name] = only(section == periods, name, " in this mode: "+periods+"'s does")
		}
		for _, name := range []string{"masqueradeAll", "masqueradeBit"} {
			moves[section+"."+name] = only(section == masquerade, "linux."+name, " in this mode: "+masquerade+"'s does")
		}
	}
	return moves
}

// unmoved are the fields of kube-proxy that have no counterpart here, or what holds them.
var unmoved = []string{
	"featureGates", "winkernel", "windowsRunAsService", "portRange", "showHiddenMetricsForVersion",
	"logging.verbosity", "logging.vmodule", "logging.options",
}

func isUnmoved(path string) bool {
	return slices.ContainsFunc(unmoved, func(u string) bool { return path == u || strings.HasPrefix(path, u+".") })
}

// only returns a field that counts if so, or why it does not.
func only(counts bool, to, why string) move {
	if counts {
		return move{to: to}
	}
	return move{idle: "does not count" + why}
}

// usual is what kube-proxy writes, by --write-config-to, where no user chose. That it
// does not count is nothing to warn of.
var usual = map[string]string{
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

// isUnset reports whether kube-proxy takes n for "the default". Where a zero means
// something to it, the field is a pointer and the default is null.
func isUnset(path string, n *yaml.Node) bool {
	pointer := strings.HasPrefix(path, "conntrack.") || path == "oomScoreAdj" || strings.HasSuffix(path, ".masqueradeBit") || path == "iptables.localhostNodePorts"
	if n.Kind == yaml.SequenceNode {
		return len(n.Content) == 0
	}
	addr, err := netip.ParseAddr(n.Value)
	anyAddress := path == "bindAddress" && err == nil && addr.IsUnspecified() // no address of its own
	return anyAddress || !pointer && slices.Contains([]string{"", "0", "0s", "false"}, n.Value)
}

// translated returns the value n of a field in our notation.
func translated(path string, n *yaml.Node) *yaml.Node {
	switch path {
	case "clusterCIDR":
		return listAt(strings.Split(n.Value, ","), n)
	case "hostnameOverride":
		return textAt(strings.ToLower(strings.TrimSpace(n.Value)), n)
	}
	return n
}

// textAt returns a text in the line of n.
func textAt(text string, n *yaml.Node) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text, Line: n.Line}
}

// listAt returns a list of texts, in the line of n.
func listAt(texts []string, n *yaml.Node) *yaml.Node {
	list := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Line: n.Line}
	for _, text := range texts {
		list.Content = append(list.Content, textAt(strings.TrimSpace(text), n))
	}
	return list
}
