// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/pointsman/pointsman/host/phrase"
	"github.com/pointsman/pointsman/internal/pipe"
)

// A Problem is an error or a warning about the settings.
type Problem struct {
	Where string // the file, "env NAME" or "flag --NAME"
	Field string // path of the field; empty: the whole file
	Why   string
	Try   string // remedy; may be empty
}

// String returns text such as "host.yaml: linux.masqueradeBit: want 0 to 31, not 32; try: ...".
func (p Problem) String() string {
	text := strings.TrimSuffix(p.Where+": "+p.Field, ": ") + ": " + p.Why
	if p.Try != "" {
		text += "; try: " + p.Try
	}
	return text
}

// Problems are an error if there are any.
type Problems []Problem

func (ps Problems) Error() string { return strings.Join(phrase.Texts(ps), "\n") }

var sha256Syntax = regexp.MustCompile(`^([0-9a-f]{64})?$`)

// isPluginName reports whether name is valid for a dataplane.
func isPluginName(name string) bool { return validation.IsDNS1123Label(name) == nil }

// check refuses values that have the right type and are not valid. It masks ranges, and completes addresses of servers.
// It warns of settings that are valid but probably not intended.
func (h *Host) check() {
	want := func(ok bool, field, try, why string, args ...any) {
		if !ok {
			h.refuse(field, fmt.Sprintf(why, args...), try)
		}
	}
	oneOf := func(field, value string, choices ...string) {
		want(slices.Contains(choices, value), field, "", "want one of %s, not %q", strings.Join(choices, ", "), value)
	}
	within := func(field string, n, least, most int) {
		want(least <= n && n <= most, field, "", "want %d to %d, not %d", least, most, n)
	}

	want(isPluginName(h.Mode), "mode", "pointsman plugin list, which prints the names", "%q is not the name of a dataplane: want lower-case letters, digits and -", h.Mode)
	want(h.Source.Files == nil || h.Source.Files.Path != "", "source.files.path", "a file or folder of manifests", "is missing")
	want(h.ClientConnection.QPS > 0, "clientConnection.qps", "", "want more than 0, not %g", h.ClientConnection.QPS)
	within("clientConnection.burst", h.ClientConnection.Burst, 1, math.MaxInt32)
	want(h.HostnameOverride == "" || validation.IsDNS1123Subdomain(h.HostnameOverride) == nil, "hostnameOverride", "kubectl get nodes, which prints the names", "%q is not the name of a node: want lower-case letters, digits, - and .", h.HostnameOverride)

	want(h.SyncPeriod.Duration > 0, "syncPeriod", "", "want more than 0s, not %s", h.SyncPeriod)
	want(h.ConfigSyncPeriod.Duration > 0, "configSyncPeriod", "", "want more than 0s, not %s", h.ConfigSyncPeriod)
	want(0 <= h.MinSyncPeriod.Duration && h.MinSyncPeriod.Duration <= max(h.SyncPeriod.Duration, 0), "minSyncPeriod", "", "want 0s to syncPeriod, which is %s, not %s", h.SyncPeriod, h.MinSyncPeriod)
	want(h.Swap.HoldTimeout.Duration > 0, "swap.holdTimeout", "", "want more than 0s, not %s", h.Swap.HoldTimeout)
	want(h.Swap.DrainTimeout.Duration >= 0, "swap.drainTimeout", "", "want 0s or more, not %s", h.Swap.DrainTimeout)

	own, err := netip.ParseAddr(cmp.Or(h.BindAddress, "0.0.0.0"))
	want(err == nil && !own.IsMulticast() && own.String() != "255.255.255.255", "bindAddress", "", "want an IP address that a machine can have, not %q", h.BindAddress)
	for _, text := range h.NodePortAddresses {
		p, err := netip.ParsePrefix(text)
		alone := text == "primary" && len(h.NodePortAddresses) == 1
		want(err == nil && !p.Addr().Is4In6() || alone, "nodePortAddresses", "", "want ranges such as 10.0.0.0/8, or primary alone, not %q", text)
	}

	d := h.DetectLocal
	oneOf("detectLocalMode", h.DetectLocalMode, DetectClusterCIDR, DetectNodeCIDR, DetectBridgeInterface, DetectInterfaceNamePrefix)
	for _, by := range []struct{ mode, field, name string }{
		{DetectBridgeInterface, "detectLocal.bridgeInterface", d.BridgeInterface},
		{DetectInterfaceNamePrefix, "detectLocal.interfaceNamePrefix", d.InterfaceNamePrefix},
	} {
		chosen := by.mode == h.DetectLocalMode
		want(chosen || by.name == "", by.field, "detectLocalMode: "+by.mode+", or leave this out", "has no effect with detectLocalMode %s", h.DetectLocalMode)
		want(!chosen || by.name != "", by.field, "", "is missing, and detectLocalMode is %s", by.mode)
		ok := len(by.name) <= 15 && !strings.ContainsAny(by.name, "/: \t\n") && by.name != "." && by.name != ".."
		want(ok, by.field, "", "%q is not the name of an interface: want up to 15 characters without / : or space", by.name)
	}
	r := d.ClusterCIDRs
	want(len(r) == 0 || h.DetectLocalMode == DetectClusterCIDR, "detectLocal.clusterCIDRs", "detectLocalMode: ClusterCIDR, or leave this out", "has no effect with detectLocalMode %s", h.DetectLocalMode)
	want(len(r) < 2 || len(r) == 2 && r[0].Addr().Is4() != r[1].Addr().Is4(), "detectLocal.clusterCIDRs", "", "want at most one range for each IP family, not %s", r)
	for field, ranges := range map[string][]netip.Prefix{"detectLocal.clusterCIDRs": d.ClusterCIDRs, "externalIPs.allow": h.ExternalIPs.Allow} {
		for i, r := range ranges {
			ranges[i] = r.Masked()
			want(r.IsValid() && !r.Addr().Is4In6(), field, "", "want address ranges, such as 10.0.0.0/8 or fd00::/8, not %s", r)
		}
	}

	bound := make(map[string]string)
	listens := func(field string, text *string, port uint16) { // port is the default
		if addr, err := netip.ParseAddr(*text); err == nil {
			*text = netip.AddrPortFrom(addr, port).String()
		}
		addr, err := netip.ParseAddrPort(*text)
		want(*text == "" || err == nil && addr.Port() > 0, field, "", "want an IP address and a port, such as 127.0.0.1:10249, or [::1]:10249, not %q", *text)
		want(*text == "" || bound[*text] == "", field, "another port", "%s is also %s", *text, bound[*text])
		bound[*text] = field
		// The status page is not encrypted, and for operators of this node only.
		want(field != "webBindAddress" || err != nil || addr.Addr().IsLoopback(), field, "forward the port to look from elsewhere: ssh -L 10246:127.0.0.1:10246 NODE", "want a loopback address, not %s", addr.Addr())
	}
	listens("healthzBindAddress", &h.HealthzBindAddress, 10256)
	listens("metricsBindAddress", &h.MetricsBindAddress, 10249)
	listens("webBindAddress", &h.WebBindAddress, 10246)
	for field, path := range map[string]string{"adminSocket": h.AdminSocket, "stateDir": h.StateDir, "dataDir": h.DataDir} {
		want(path != "", field, "an absolute path", "is empty")
	}
	want(!slices.Contains(h.PluginDirs, ""), "pluginDirs", "", "has an empty path: %q", h.PluginDirs)
	within("oomScoreAdj", h.OOMScoreAdj, -1000, 1000)

	ct := h.Linux.Conntrack
	within("linux.masqueradeBit", h.Linux.MasqueradeBit, 0, 31)
	within("linux.conntrack.maxPerCore", ct.MaxPerCore, 0, math.MaxInt32)
	within("linux.conntrack.min", ct.Min, 0, math.MaxInt32)
	for field, d := range map[string]Duration{
		"tcpEstablishedTimeout": ct.TCPEstablishedTimeout, "tcpCloseWaitTimeout": ct.TCPCloseWaitTimeout,
		"udpTimeout": ct.UDPTimeout, "udpStreamTimeout": ct.UDPStreamTimeout,
	} {
		ok := d.Duration >= 0 && d.Duration%time.Second == 0 && d.Duration/time.Second <= math.MaxInt32
		want(ok, "linux.conntrack."+field, "", "want whole seconds, 0s or more, not %s", d)
	}
	oneOf("logging.level", h.Logging.Level, "trace", "debug", "info", "warn", "error")
	oneOf("logging.format", h.Logging.Format, "text", "json")
	oneOf("externalIPs.nodeAddresses", h.ExternalIPs.NodeAddresses, "refuse", "warn", "serve")

	for _, name := range slices.Sorted(maps.Keys(h.Plugins)) {
		p, field := h.Plugins[name], "plugins."+name
		want(len(p.Options) == 0 || p.Options[0] == '{', field+".options", "", "want the plugin's options and their values") // without the value, which may be a secret
		want(sha256Syntax.MatchString(p.SHA256), field+".sha256", "sha256sum, which prints them", "want 64 lower-case hexadecimal digits, not %q", p.SHA256)
		want(p.Address == "" || p.Path == "" && p.SHA256 == "", field+".address", "keep one of the two", "an address is for a running plugin, and path and sha256 are for a plugin that the host starts")
		isSocket := strings.HasPrefix(p.Address, "unix:///") && runtime.GOOS != "windows"
		want(p.Address == "" || isSocket || pipe.IsPath(p.Address) && runtime.GOOS == "windows", field+".address", "", `want a socket such as unix:///run/acme.sock, or on Windows a pipe such as \\.\pipe\acme, not %q`, p.Address)
	}
	if h.Source.Kubernetes != nil && h.DetectLocalMode == DetectClusterCIDR && len(r) == 0 {
		h.From.Warnings = append(h.From.Warnings, h.Problem("detectLocal.clusterCIDRs", "is empty, so that no caller is recognized as a pod", "the ranges of the pods, or detectLocalMode: "+DetectNodeCIDR))
	}
}
