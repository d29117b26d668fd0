// SPDX-License-Identifier: Apache-2.0

/*
Package config reads the one file a user writes.

	defaults.yaml ─┐
	host.yaml ─────┤ strict: every field known, typed,     ┌─▶ Host, and of each
	POINTSMAN_* ───┼─▶ given once; all that is wrong is ───┤   value where it came from
	flags ─────────┘   told at once, with file and line    └─▶ or Problems

The later in this list wins. A field that it is not known is an error and not a
shrug: a misspelt one would silently leave the default in force.

A running host looks at its file again and again (Follow). What it can change
while it runs it changes; what needs a restart is listed as pending; and a file
that is gone, empty, unreadable or wrong changes nothing: the last good one stays
in force, and status says so.
*/
package config

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"time"
)

// The (apiVersion, kind) that this version reads.
const (
	APIVersion = "pointsman.dev/v1alpha1"
	Kind       = "HostConfig"
)

// A Host is the settings of one host, from the one file a user writes. What each
// field means and when to touch it stands in defaults.yaml, which is also where
// the defaults come from. A field is named in errors, environment variables and
// `config show` by its yaml names: linux.conntrack.min.
type Host struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string `yaml:"kind"`

	Mode   string `yaml:"mode"`
	Source Source `yaml:"source"`

	ClientConnection ClientConnection `yaml:"clientConnection"`
	HostnameOverride string           `yaml:"hostnameOverride"`
	BindAddress      string           `yaml:"bindAddress"`

	SyncPeriod       time.Duration `yaml:"syncPeriod"`
	MinSyncPeriod    time.Duration `yaml:"minSyncPeriod"`
	ConfigSyncPeriod time.Duration `yaml:"configSyncPeriod"`

	DetectLocalMode   string      `yaml:"detectLocalMode"`
	DetectLocal       DetectLocal `yaml:"detectLocal"`
	NodePortAddresses []string    `yaml:"nodePortAddresses"` // see NodePorts
	ExternalIPs       ExternalIPs `yaml:"externalIPs"`

	HealthzBindAddress  string `yaml:"healthzBindAddress"` // empty: no such server
	MetricsBindAddress  string `yaml:"metricsBindAddress"` // empty: no such server
	WebBindAddress      string `yaml:"webBindAddress"`     // empty: no such server
	BindAddressHardFail bool   `yaml:"bindAddressHardFail"`
	EnableProfiling     bool   `yaml:"enableProfiling"`
	AdminSocket         string `yaml:"adminSocket"`
	StateDir            string `yaml:"stateDir"`
	DataDir             string `yaml:"dataDir"`
	OOMScoreAdj         int    `yaml:"oomScoreAdj"`

	Linux   Linux   `yaml:"linux"`
	Logging Logging `yaml:"logging"`

	PluginDirs []string          `yaml:"pluginDirs"`
	Swap       Swap              `yaml:"swap"`
	Plugins    map[string]Plugin `yaml:"plugins"`

	from provenance
}

// Auto is the mode that has the host choose one.
const Auto = "auto"

// A Source is where Services come from; exactly one field is set.
type Source struct {
	Kubernetes *Kubernetes `yaml:"kubernetes"`
	Files      *Files      `yaml:"files"`
}

// Kubernetes is a cluster's API server.
type Kubernetes struct {
	Kubeconfig string `yaml:"kubeconfig"` // empty: the pod's own service account
}

// Files are manifests on this machine.
type Files struct {
	Path string `yaml:"path"` // a file, or a folder of them
}

// ClientConnection bounds the requests to the API server.
type ClientConnection struct {
	QPS   float64 `yaml:"qps"`
	Burst int     `yaml:"burst"`
}

// DetectLocal says what is a pod of this node; which field counts is
// DetectLocalMode's choice.
type DetectLocal struct {
	ClusterCIDRs        []netip.Prefix `yaml:"clusterCIDRs"` // at most one for each family
	BridgeInterface     string         `yaml:"bridgeInterface"`
	InterfaceNamePrefix string         `yaml:"interfaceNamePrefix"`
}

// The values of DetectLocalMode.
const (
	DetectClusterCIDR         = "ClusterCIDR"
	DetectNodeCIDR            = "NodeCIDR"
	DetectBridgeInterface     = "BridgeInterface"
	DetectInterfaceNamePrefix = "InterfaceNamePrefix"
)

// ExternalIPs says which externalIPs of Services are served.
type ExternalIPs struct {
	Allow         []netip.Prefix `yaml:"allow"`
	NodeAddresses string         `yaml:"nodeAddresses"`
}

// The values of ExternalIPs.NodeAddresses.
const (
	RefuseNodeAddresses = "refuse"
	WarnOfNodeAddresses = "warn"
	ServeNodeAddresses  = "serve"
)

// Linux is what only a Linux node has.
type Linux struct {
	MasqueradeAll bool      `yaml:"masqueradeAll"`
	MasqueradeBit int       `yaml:"masqueradeBit"`
	Conntrack     Conntrack `yaml:"conntrack"`
}

// Conntrack is the kernel's connection tracking. A zero leaves the kernel's own
// value.
type Conntrack struct {
	MaxPerCore            int           `yaml:"maxPerCore"`
	Min                   int           `yaml:"min"`
	TCPEstablishedTimeout time.Duration `yaml:"tcpEstablishedTimeout"`
	TCPCloseWaitTimeout   time.Duration `yaml:"tcpCloseWaitTimeout"`
	TCPBeLiberal          bool          `yaml:"tcpBeLiberal"`
	UDPTimeout            time.Duration `yaml:"udpTimeout"`
	UDPStreamTimeout      time.Duration `yaml:"udpStreamTimeout"`
}

// Logging is the host's own log.
type Logging struct {
	Level  string `yaml:"level"`  // trace, debug, info, warn, error
	Format string `yaml:"format"` // text, json
}

// Swap is how a mode is left for another.
type Swap struct {
	DrainTimeout time.Duration `yaml:"drainTimeout"`
	OnFailure    string        `yaml:"onFailure"`
}

// A Plugin is what the host must know of one dataplane.
type Plugin struct {
	Path    string          `yaml:"path"`    // the binary; empty: found in PluginDirs
	SHA256  string          `yaml:"sha256"`  // what the binary must be; empty: not checked
	Address string          `yaml:"address"` // unix:///… of one that runs already: attach, do not launch
	Debug   bool            `yaml:"debug"`   // a process that hangs is not ended, for a debugger may have stopped it
	Options json.RawMessage `yaml:"options"` // the plugin's own, as JSON with the case kept; nil: none
}

// NodePorts says which of the node's addresses take node ports: the ranges that
// NodePortAddresses lists, or, when primary, the node's addresses as its Node
// object has them. Neither: every address.
func (h *Host) NodePorts() (ranges []netip.Prefix, primary bool) {
	for _, text := range h.NodePortAddresses {
		if text == primaryAddresses {
			return nil, true
		}
		if p, err := netip.ParsePrefix(text); err == nil {
			ranges = append(ranges, p.Masked())
		}
	}
	return ranges, false
}

// primaryAddresses is the word in NodePortAddresses for the node's own addresses.
const primaryAddresses = "primary"

// An Origin is where a value came from.
type Origin struct {
	Layer Layer
	Name  string // the file, the environment variable, the flag
	Line  int    // in the file; 0 elsewhere
}

// A Layer is one of the places that settings come from; a later one wins.
type Layer uint8

// The layers.
const (
	Default Layer = iota
	File
	Env
	Flag
)

// String reads as in `config show --origin`: "host.yaml:12", "env POINTSMAN_MODE".
func (o Origin) String() string {
	switch o.Layer {
	case File:
		if o.Line == 0 {
			return o.Name
		}
		return fmt.Sprintf("%s:%d", o.Name, o.Line)
	case Env:
		return "env " + o.Name
	case Flag:
		return "flag --" + o.Name
	}
	return "default"
}

// MarshalText makes an origin in JSON what String says.
func (o Origin) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// provenance is where the values of a Host came from.
type provenance struct {
	path     string
	hash     string
	origins  map[string]Origin // by field path, leaves and what holds them
	warnings []Problem

	kubeProxy json.RawMessage // the file, where it is kube-proxy's
}

// KubeProxy returns the file as JSON where it is kube-proxy's, else nil.
func (h *Host) KubeProxy() json.RawMessage { return h.from.kubeProxy }

// Path returns the file that was read; empty when none was.
func (h *Host) Path() string { return h.from.path }

// Hash tells one content of the file from another; empty when none was read.
func (h *Host) Hash() string { return h.from.hash }

// Warnings returns what is odd but no error, such as an environment variable that
// looks like a setting and is none.
func (h *Host) Warnings() []Problem { return h.from.warnings }

// Origin says where the value of a field came from. A path below what is known,
// such as an option of a plugin, has the origin of what is nearest above it.
func (h *Host) Origin(path string) Origin {
	for {
		if o, ok := h.from.origins[path]; ok {
			return o
		}
		dot := strings.LastIndexByte(path, '.')
		if dot < 0 {
			return Origin{}
		}
		path = path[:dot]
	}
}
