// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"math"
	"net/netip"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/pointsman/pointsman/host/phrase"
	"github.com/pointsman/pointsman/internal/pipe"
)

// A Problem is one thing that is wrong with the settings.
type Problem struct {
	Where Origin
	Field string // its path; empty: the file as a whole
	Why   string
	Try   string // what to do; may be empty
}

// String reads: "host.yaml:14: plugins.ipvs.opitons: unknown field; did you mean options?"
func (p Problem) String() string {
	text := p.Why
	if p.Field != "" {
		text = p.Field + ": " + text
	}
	if p.Try != "" {
		text += "; " + p.Try
	}
	return p.Where.String() + ": " + text
}

// Problems are all that is wrong, in the order of the file. They are an error.
type Problems []Problem

func (ps Problems) Error() string { return strings.Join(phrase.Texts(ps), "\n") }

// A checker collects what is wrong with values that are each of the right type.
type checker struct {
	*Host
	problems Problems
}

// check finds all that is wrong with h, at once.
func check(h *Host) Problems {
	c := &checker{Host: h}
	c.serving()
	c.periods()
	c.addresses()
	c.detectLocal()
	c.places()
	c.linux()
	c.choices()
	c.plugins()
	return c.problems
}

func (c *checker) bad(field, why, try string) {
	c.problems = append(c.problems, Problem{Where: c.Origin(field), Field: field, Why: why, Try: try})
}

func (c *checker) want(ok bool, field, why, try string) {
	if !ok {
		c.bad(field, why, try)
	}
}

// given returns the one of two fields that was set, where the default is not to
// blame.
func (c *checker) given(field, other string) string {
	if c.Origin(field).Layer == Default {
		return other
	}
	return field
}

var nodeName = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$`)

func (c *checker) serving() {
	c.want(isName(c.Mode), "mode", fmt.Sprintf("%q is no dataplane's name: want lower-case letters, digits and -", c.Mode), "pointsman plugin list names those that are there")
	if c.Source.Files != nil {
		c.want(c.Source.Files.Path != "", "source.files.path", "is missing", "name a manifest file, or a folder of them")
	}
	c.want(c.ClientConnection.QPS > 0, "clientConnection.qps", fmt.Sprintf("want more than 0, not %g", c.ClientConnection.QPS), "")
	c.want(c.ClientConnection.Burst > 0, "clientConnection.burst", fmt.Sprintf("want more than 0, not %d", c.ClientConnection.Burst), "")
	c.want(c.HostnameOverride == "" || nodeName.MatchString(c.HostnameOverride), "hostnameOverride",
		fmt.Sprintf("%q is no node's name: want lower-case letters, digits, - and .", c.HostnameOverride), "kubectl get nodes lists them")
}

func (c *checker) periods() {
	c.want(c.SyncPeriod > 0, "syncPeriod", fmt.Sprintf("want more than 0s, not %s", brief(c.SyncPeriod)), "")
	c.want(c.ConfigSyncPeriod > 0, "configSyncPeriod", fmt.Sprintf("want more than 0s, not %s", brief(c.ConfigSyncPeriod)), "")
	c.notNegative("minSyncPeriod", c.MinSyncPeriod)
	if c.SyncPeriod > 0 && c.MinSyncPeriod > c.SyncPeriod {
		c.bad(c.given("minSyncPeriod", "syncPeriod"), fmt.Sprintf("minSyncPeriod is %s, more than syncPeriod, which is %s", brief(c.MinSyncPeriod), brief(c.SyncPeriod)), "")
	}
}

func (c *checker) addresses() {
	if c.BindAddress != "" {
		addr, err := netip.ParseAddr(c.BindAddress)
		c.want(err == nil, "bindAddress", fmt.Sprintf("want an IP address, not %q", c.BindAddress), "")
		broadcast := addr == netip.AddrFrom4([4]byte{255, 255, 255, 255})
		c.want(!addr.IsMulticast() && !broadcast, "bindAddress", fmt.Sprintf("want an address that a machine can have, not %q", c.BindAddress), "")
	}
	for _, text := range c.NodePortAddresses {
		if text == primaryAddresses {
			c.want(len(c.NodePortAddresses) == 1, "nodePortAddresses", "primary stands alone", "keep it or the ranges")
			continue
		}
		_, err := parsePrefix(text)
		c.want(err == nil, "nodePortAddresses", fmt.Sprintf("want ranges such as 10.0.0.0/8, or primary, not %q", text), "")
	}
}

// detectLocal checks that the mode has what it needs, and that nothing is given
// that would silently not count.
func (c *checker) detectLocal() {
	d := c.DetectLocal
	modes := []string{DetectClusterCIDR, DetectNodeCIDR, DetectBridgeInterface, DetectInterfaceNamePrefix}
	if !slices.Contains(modes, c.DetectLocalMode) {
		c.oneOf("detectLocalMode", c.DetectLocalMode, modes...)
		return
	}
	given := []struct {
		mode, field string
		set, needed bool
	}{
		{DetectClusterCIDR, "detectLocal.clusterCIDRs", len(d.ClusterCIDRs) > 0, false},
		{DetectBridgeInterface, "detectLocal.bridgeInterface", d.BridgeInterface != "", true},
		{DetectInterfaceNamePrefix, "detectLocal.interfaceNamePrefix", d.InterfaceNamePrefix != "", true},
	}
	for _, g := range given {
		c.want(!g.set || g.mode == c.DetectLocalMode, g.field, "does not count with detectLocalMode "+c.DetectLocalMode, "remove it, or set detectLocalMode: "+g.mode)
		c.want(g.set || !g.needed || g.mode != c.DetectLocalMode, "detectLocalMode", g.mode+" goes by "+g.field+", which is missing", "")
	}
	c.interfaceName("detectLocal.bridgeInterface", d.BridgeInterface)
	c.interfaceName("detectLocal.interfaceNamePrefix", d.InterfaceNamePrefix)
	r := d.ClusterCIDRs
	onePerFamily := len(r) < 2 || len(r) == 2 && r[0].Addr().Is4() != r[1].Addr().Is4()
	c.want(onePerFamily, "detectLocal.clusterCIDRs", "has two ranges of one IP family", "keep one of each")
}

// odd finds what is no error, and mostly is not meant.
func odd(h *Host) Problems {
	const ranges = "detectLocal.clusterCIDRs"
	if h.Source.Kubernetes == nil || h.DetectLocalMode != DetectClusterCIDR || len(h.DetectLocal.ClusterCIDRs) > 0 {
		return nil
	}
	return Problems{{Where: h.Origin(ranges), Field: ranges, Why: "is empty, so that no caller is known to be a pod",
		Try: "give the pods' ranges, or set detectLocalMode: " + DetectNodeCIDR}}
}

// interfaceName wants what the kernel takes as a device's name.
func (c *checker) interfaceName(field, name string) {
	ok := len(name) <= 15 && !strings.ContainsAny(name, "/: \t\n") && name != "." && name != ".."
	c.want(ok, field, fmt.Sprintf("%q is no interface's name: want up to 15 characters without / : or space", name), "")
}

func (c *checker) places() {
	c.hostPort("healthzBindAddress", c.HealthzBindAddress)
	c.hostPort("metricsBindAddress", c.MetricsBindAddress)
	c.want(c.HealthzBindAddress == "" || c.HealthzBindAddress != c.MetricsBindAddress, c.given("metricsBindAddress", "healthzBindAddress"),
		"healthzBindAddress and metricsBindAddress are the same", "take another port")
	c.web()
	c.want(c.AdminSocket != "", "adminSocket", "is missing", "")
	c.fits("adminSocket", c.AdminSocket, maxSocket-newSocket)
	c.want(c.StateDir != "", "stateDir", "is missing", "")
	c.want(c.DataDir != "", "dataDir", "is missing", "")
	c.want(!slices.Contains(c.PluginDirs, ""), "pluginDirs", "names an empty path", "")
	c.want(c.OOMScoreAdj >= -1000 && c.OOMScoreAdj <= 1000, "oomScoreAdj", fmt.Sprintf("want -1000 to 1000, not %d", c.OOMScoreAdj), "")
}

func (c *checker) hostPort(field, text string) {
	if text == "" {
		return
	}
	addr, err := netip.ParseAddrPort(text)
	c.want(err == nil && addr.Port() > 0, field, fmt.Sprintf("want an IP address and a port, such as 127.0.0.1:10249, or [::1]:10249, not %q", text), "")
}

// web wants an address that only processes of this node reach: what is shown there is for its
// operators, and goes unencrypted.
func (c *checker) web() {
	c.hostPort("webBindAddress", c.WebBindAddress)
	addr, err := netip.ParseAddrPort(c.WebBindAddress)
	if err != nil {
		return // hostPort says so
	}
	c.want(addr.Addr().IsLoopback(), "webBindAddress", fmt.Sprintf("want a loopback address, not %s", addr.Addr()), "to look from elsewhere, forward the port: ssh -L 10246:127.0.0.1:10246 NODE")
	c.want(c.WebBindAddress != c.HealthzBindAddress && c.WebBindAddress != c.MetricsBindAddress, "webBindAddress", "is healthzBindAddress or metricsBindAddress, too", "take another port")
}

// maxSocket is how long the path of a unix socket can be; that of the admin socket is shorter,
// because it is made under a name with newSocket behind it.
const (
	maxSocket = 107
	newSocket = len(".new")
)

// fits wants the path of a socket to be no longer than most.
func (c *checker) fits(field, path string, most int) {
	c.want(len(path) <= most, field, fmt.Sprintf("is %d bytes long, and the path of this socket may have %d", len(path), most), "use a shorter path")
}

func (c *checker) linux() {
	l, ct := c.Linux, c.Linux.Conntrack
	c.want(l.MasqueradeBit >= 0 && l.MasqueradeBit <= 31, "linux.masqueradeBit", fmt.Sprintf("want 0 to 31, not %d", l.MasqueradeBit), "")
	c.want(ct.MaxPerCore >= 0, "linux.conntrack.maxPerCore", fmt.Sprintf("want 0 or more, not %d", ct.MaxPerCore), "")
	c.want(ct.Min >= 0, "linux.conntrack.min", fmt.Sprintf("want 0 or more, not %d", ct.Min), "")
	c.timeout("linux.conntrack.tcpEstablishedTimeout", ct.TCPEstablishedTimeout)
	c.timeout("linux.conntrack.tcpCloseWaitTimeout", ct.TCPCloseWaitTimeout)
	c.timeout("linux.conntrack.udpTimeout", ct.UDPTimeout)
	c.timeout("linux.conntrack.udpStreamTimeout", ct.UDPStreamTimeout)
}

// timeout wants what the kernel can be told: whole seconds in 31 bits.
func (c *checker) timeout(field string, d time.Duration) {
	c.notNegative(field, d)
	c.want(d%time.Second == 0 && d/time.Second <= math.MaxInt32, field, fmt.Sprintf("want whole seconds, not %s", brief(d)), "")
}

func (c *checker) notNegative(field string, d time.Duration) {
	c.want(d >= 0, field, fmt.Sprintf("want 0s or more, not %s", brief(d)), "")
}

func (c *checker) choices() {
	c.oneOf("logging.level", c.Logging.Level, "trace", "debug", "info", "warn", "error")
	c.oneOf("logging.format", c.Logging.Format, "text", "json")
	c.oneOf("externalIPs.nodeAddresses", c.ExternalIPs.NodeAddresses, RefuseNodeAddresses, WarnOfNodeAddresses, ServeNodeAddresses)
	c.oneOf("swap.onFailure", c.Swap.OnFailure, "rollback", "stay")
	c.notNegative("swap.drainTimeout", c.Swap.DrainTimeout)
}

func (c *checker) oneOf(field, value string, choices ...string) {
	c.want(slices.Contains(choices, value), field, fmt.Sprintf("want one of %s, not %q", strings.Join(choices, ", "), value), DidYouMean(value, choices))
}

var sha256Syntax = regexp.MustCompile(`^[0-9a-f]{64}$`)

func (c *checker) plugins() {
	for _, name := range pluginNames(c.Host) {
		p, field := c.Plugins[name], "plugins."+name
		c.want(p.SHA256 == "" || sha256Syntax.MatchString(p.SHA256), field+".sha256", "want 64 lower-case hexadecimal digits", "sha256sum prints them")
		if p.Address == "" {
			continue
		}
		c.address(field+".address", p.Address)
		c.want(p.Path == "" && p.SHA256 == "", field+".address", "says that the plugin runs already, while path or sha256 say what to start", "keep one of the two")
	}
}

// address wants one at which a plugin can listen by itself.
func (c *checker) address(field, address string) {
	if runtime.GOOS == "windows" {
		c.want(pipe.IsPath(address), field, fmt.Sprintf(`want a pipe such as \\.\pipe\acme, not %s`, address), "")
		return
	}
	c.want(strings.HasPrefix(address, "unix:///"), field, fmt.Sprintf("want a socket such as unix:///run/acme.sock, not %q", address), "")
	c.fits(field, strings.TrimPrefix(address, "unix://"), maxSocket)
}

// DidYouMean asks for the one of words that was probably meant; empty: none is near.
func DidYouMean(word string, words []string) string {
	if meant := suggest(word, words); meant != "" {
		return "did you mean " + meant + "?"
	}
	return ""
}

// suggest finds among words the one that was probably meant; empty: none is near.
func suggest(word string, words []string) string {
	best, least := "", max(1, min(3, len(word)/3))+1
	for _, w := range slices.Sorted(slices.Values(words)) {
		if strings.EqualFold(word, w) {
			return w
		}
		if d := distance(strings.ToLower(word), strings.ToLower(w)); d < least {
			best, least = w, d
		}
	}
	return best
}

// distance returns the number of letters to insert, delete, replace or swap with the
// next one to make b of a.
func distance(a, b string) int {
	before, last, row := []int{}, make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, make([]int, len(b)+1)
	}
	return last[len(b)]
}
