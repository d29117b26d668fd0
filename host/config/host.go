// SPDX-License-Identifier: Apache-2.0

/*
Package config reads the settings of a host from its file, the environment and flags.

	defaults.yaml ─┐
	host.yaml ─────┤  each value is decoded strictly;    ┌─▶ Host
	POINTSMAN_* ───┼▶ viper merges the layers, of which ─┤
	flags ─────────┘  the last one wins; check           └─▶ or Problems

sigs.k8s.io/yaml converts the file to JSON, as kube-proxy does. accept decodes each value
strictly at its path into an empty Host: decoding the whole file at once would report only
the first value of a wrong type. Values of variables and flags are decoded in the same way.

A running host polls its file (Follower). A missing or invalid file never replaces valid
settings, and status reports it.

Start reading at Parse.
*/
package config

import (
	"cmp"
	"encoding/json"
	"maps"
	"net/netip"
	"reflect"
	"regexp"
	"time"
)

// APIVersion and Kind identify the config file.
const (
	APIVersion = "pointsman.dev/v1alpha1"
	Kind       = "HostConfig"
)

// Host has the settings of a host. defaults.yaml documents the fields and has their
// defaults. Errors, environment variables and `config show` name a field by its path:
// linux.conntrack.min.
type Host struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`

	Mode   string `json:"mode"`
	Source Source `json:"source"`

	ClientConnection struct { // limits of requests to the API server
		QPS   float64 `json:"qps"`
		Burst int     `json:"burst"`
	} `json:"clientConnection"`
	HostnameOverride string `json:"hostnameOverride"`
	BindAddress      string `json:"bindAddress"`

	SyncPeriod       Duration `json:"syncPeriod"`
	MinSyncPeriod    Duration `json:"minSyncPeriod"`
	ConfigSyncPeriod Duration `json:"configSyncPeriod"`

	DetectLocalMode string   `json:"detectLocalMode"`
	DetectLocal     struct { // identifies the pods of this node, according to DetectLocalMode
		ClusterCIDRs        []netip.Prefix `json:"clusterCIDRs"` // at most one for each family
		BridgeInterface     string         `json:"bridgeInterface"`
		InterfaceNamePrefix string         `json:"interfaceNamePrefix"`
	} `json:"detectLocal"`
	NodePortAddresses []string `json:"nodePortAddresses"` // see NodePorts
	ExternalIPs       struct { // which externalIPs of Services are served
		Allow         []netip.Prefix `json:"allow"`
		NodeAddresses string         `json:"nodeAddresses"` // refuse, warn, serve
	} `json:"externalIPs"`

	HealthzBindAddress  string `json:"healthzBindAddress"` // empty: no server
	MetricsBindAddress  string `json:"metricsBindAddress"` // empty: no server
	WebBindAddress      string `json:"webBindAddress"`     // empty: no server
	BindAddressHardFail bool   `json:"bindAddressHardFail"`
	EnableProfiling     bool   `json:"enableProfiling"`
	AdminSocket         string `json:"adminSocket"`
	StateDir            string `json:"stateDir"`
	DataDir             string `json:"dataDir"`
	OOMScoreAdj         int    `json:"oomScoreAdj"`

	Linux struct {
		MasqueradeAll bool     `json:"masqueradeAll"`
		MasqueradeBit int      `json:"masqueradeBit"`
		Conntrack     struct { // A zero leaves the kernel's own value.
			MaxPerCore            int      `json:"maxPerCore"`
			Min                   int      `json:"min"`
			TCPEstablishedTimeout Duration `json:"tcpEstablishedTimeout"`
			TCPCloseWaitTimeout   Duration `json:"tcpCloseWaitTimeout"`
			TCPBeLiberal          bool     `json:"tcpBeLiberal"`
			UDPTimeout            Duration `json:"udpTimeout"`
			UDPStreamTimeout      Duration `json:"udpStreamTimeout"`
		} `json:"conntrack"`
	} `json:"linux"`
	Logging struct { // of the host's own log
		Level  string `json:"level"`  // trace, debug, info, warn, error
		Format string `json:"format"` // text, json
	} `json:"logging"`

	PluginDirs []string `json:"pluginDirs"`
	Swap       struct { // of a mode for another
		DrainTimeout Duration `json:"drainTimeout"`
		HoldTimeout  Duration `json:"holdTimeout"`
	} `json:"swap"`
	Plugins map[string]Plugin `json:"plugins"`

	From From `json:"-"`
}

// Auto is the mode for which the host chooses a dataplane.
const Auto = "auto"

// A Source is where Services come from; exactly one field is set.
type Source struct {
	Kubernetes *Kubernetes `json:"kubernetes,omitempty"`
	Files      *Files      `json:"files,omitempty"`
}

// Kubernetes is a cluster's API server.
type Kubernetes struct {
	Kubeconfig string `json:"kubeconfig"` // empty: the pod's own service account
}

// Files are manifests on this machine.
type Files struct {
	Path string `json:"path"` // of a file or folder
}

// The values of DetectLocalMode.
const (
	DetectClusterCIDR         = "ClusterCIDR"
	DetectNodeCIDR            = "NodeCIDR"
	DetectBridgeInterface     = "BridgeInterface"
	DetectInterfaceNamePrefix = "InterfaceNamePrefix"
)

// A Plugin has the settings of one dataplane.
type Plugin struct {
	Path    string          `json:"path,omitempty"`    // of the binary; empty: the host looks in PluginDirs
	SHA256  string          `json:"sha256,omitempty"`  // of the binary; empty: not checked
	Address string          `json:"address,omitempty"` // unix:///… of a running plugin, to which the host attaches
	Debug   bool            `json:"debug,omitempty"`   // never kill a hung process, because a debugger may have stopped it
	Options json.RawMessage `json:"options,omitempty"` // an object that the plugin defines; nil: none
}

// A Duration is text with a unit in JSON.
type Duration struct{ time.Duration }

// UnmarshalText parses text such as "1h30m".
func (d *Duration) UnmarshalText(text []byte) (err error) {
	if d.Duration, err = time.ParseDuration(string(text)); err != nil {
		return &json.UnmarshalTypeError{Value: string(text), Type: reflect.TypeFor[Duration]()}
	}
	return nil
}

// MarshalText returns text such as "1h30m0s".
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// NodePorts returns the addresses of the node that accept node ports: those in ranges, or
// if primary the addresses in the Node object. All addresses do if there are no ranges.
func (h *Host) NodePorts() (ranges []netip.Prefix, primary bool) {
	for _, text := range h.NodePortAddresses {
		p, err := netip.ParsePrefix(text)
		if err != nil { // check accepts only "primary" apart from ranges
			return nil, true
		}
		ranges = append(ranges, p.Masked())
	}
	return ranges, false
}

// From describes where the settings of a Host come from.
type From struct {
	Path      string            // of the file; empty if there is none
	Hash      string            // of the content of the file
	Loaded    time.Time         // when the file was read
	Warnings  Problems          // settings that are valid but probably not intended
	KubeProxy json.RawMessage   // the file, if it is kube-proxy's
	problems  Problems          // the errors found so far
	outside   map[string]string // flag or environment variable that set a field, by path
}

// Problem returns a problem with a field of h, and names the layer that has set the field.
func (h *Host) Problem(field, why, try string) Problem {
	return Problem{Where: cmp.Or(h.From.outside[field], h.From.Path, "default"), Field: field, Why: why, Try: try}
}

// refuse adds a problem with a field.
func (h *Host) refuse(field, why, try string) {
	h.From.problems = append(h.From.problems, h.Problem(field, why, try))
}

// Hidden replaces a secret.
const Hidden = "(secret)"

// Public returns h without secrets. Only a plugin knows which of its options are secret, so the
// values of all options are hidden; no other field has a secret. It also returns the hidden texts,
// because messages may quote them.
func (h *Host) Public() (public Host, hidden []string) {
	public = *h
	public.Plugins = maps.Clone(h.Plugins)
	for name, p := range public.Plugins {
		var options map[string]json.RawMessage
		if json.Unmarshal(p.Options, &options) != nil {
			continue // without options: check accepts only an object
		}
		for option, value := range options {
			for _, quoted := range jsonText.FindAll(value, -1) {
				var text string
				_ = json.Unmarshal(quoted, &text) // cannot fail: jsonText has matched a string
				hidden = append(hidden, text)
			}
			options[option] = json.RawMessage(`"` + Hidden + `"`)
		}
		p.Options, _ = json.Marshal(options)
		public.Plugins[name] = p
	}
	return public, hidden
}

var jsonText = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)
