// SPDX-License-Identifier: Apache-2.0

/*
Package config reads the one file a user writes.

	defaults.yaml ─┐
	host.yaml ─────┤ decoded alone and strictly, laid over one another by ┌─▶ Host
	POINTSMAN_* ───┼▶ viper (the last layer that has a value wins), ──────┤
	flags ─────────┘  checked                                             └─▶ or Problems

sigs.k8s.io/yaml converts the file to JSON, as kube-proxy does, and each value is
decoded strictly at its path into an empty Host: decoding the whole file at once would
report only the first value of a wrong type. So is what a variable or flag says.

A running host reads its file again and again (Follow). A file that is missing or wrong
changes nothing: the last good one stays in force, and status says so.
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

// The (apiVersion, kind) that this version reads.
const (
	APIVersion = "pointsman.dev/v1alpha1"
	Kind       = "HostConfig"
)

// A Host is the settings of one host. defaults.yaml says what each field means and
// when to change it; the defaults come from there, too. Errors, environment variables
// and `config show` name a field by its path: linux.conntrack.min.
type Host struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`

	Mode   string `json:"mode"`
	Source Source `json:"source"`

	ClientConnection struct { // bounds the requests to the API server
		QPS   float64 `json:"qps"`
		Burst int     `json:"burst"`
	} `json:"clientConnection"`
	HostnameOverride string `json:"hostnameOverride"`
	BindAddress      string `json:"bindAddress"`

	SyncPeriod       Duration `json:"syncPeriod"`
	MinSyncPeriod    Duration `json:"minSyncPeriod"`
	ConfigSyncPeriod Duration `json:"configSyncPeriod"`

	DetectLocalMode string   `json:"detectLocalMode"`
	DetectLocal     struct { // what is a pod of this node, by DetectLocalMode
		ClusterCIDRs        []netip.Prefix `json:"clusterCIDRs"` // at most one for each family
		BridgeInterface     string         `json:"bridgeInterface"`
		InterfaceNamePrefix string         `json:"interfaceNamePrefix"`
	} `json:"detectLocal"`
	NodePortAddresses []string `json:"nodePortAddresses"` // see NodePorts
	ExternalIPs       struct { // which externalIPs of Services are served
		Allow         []netip.Prefix `json:"allow"`
		NodeAddresses string         `json:"nodeAddresses"` // refuse, warn, serve
	} `json:"externalIPs"`

	HealthzBindAddress  string `json:"healthzBindAddress"` // empty: no such server
	MetricsBindAddress  string `json:"metricsBindAddress"` // empty: no such server
	WebBindAddress      string `json:"webBindAddress"`     // empty: no such server
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
	Swap       struct { // how a mode is left for another
		DrainTimeout Duration `json:"drainTimeout"`
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
	Path string `json:"path"` // a file, or a folder of them
}

// The values of DetectLocalMode.
const (
	DetectClusterCIDR         = "ClusterCIDR"
	DetectNodeCIDR            = "NodeCIDR"
	DetectBridgeInterface     = "BridgeInterface"
	DetectInterfaceNamePrefix = "InterfaceNamePrefix"
)

// A Plugin is what the host must know of one dataplane.
type Plugin struct {
	Path    string          `json:"path,omitempty"`    // the binary; empty: found in PluginDirs
	SHA256  string          `json:"sha256,omitempty"`  // what the binary must be; empty: not checked
	Address string          `json:"address,omitempty"` // unix:///… of one that runs already: attach, do not launch
	Debug   bool            `json:"debug,omitempty"`   // a process that hangs is not ended, for a debugger may have stopped it
	Options json.RawMessage `json:"options,omitempty"` // the plugin's own, with the case of their keys; nil: none
}

// A Duration is written as text with a unit.
type Duration struct{ time.Duration }

// UnmarshalText reads "1h30m".
func (d *Duration) UnmarshalText(text []byte) (err error) {
	if d.Duration, err = time.ParseDuration(string(text)); err != nil {
		return &json.UnmarshalTypeError{Value: string(text), Type: reflect.TypeFor[Duration]()}
	}
	return nil
}

// MarshalText writes "1h30m0s".
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// NodePorts says which of the node's addresses take node ports: the ranges that
// NodePortAddresses lists, or, when primary, the node's addresses as its Node
// object has them. Neither: every address.
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

// From is where the settings of a Host came from.
type From struct {
	Path      string            // of the file; empty: none was read
	Warnings  Problems          // of what is odd but no error
	KubeProxy json.RawMessage   // the file, if it is kube-proxy's
	problems  Problems          // of what is wrong
	Hash      string            // differs for each content of the file
	Loaded    time.Time         // when it was read
	outside   map[string]string // by field path, the flag or environment variable that set it
}

// Problem returns one with a field of h. It names the layer that the field's value came from.
func (h *Host) Problem(field, why, try string) Problem {
	return Problem{Where: cmp.Or(h.From.outside[field], h.From.Path, "default"), Field: field, Why: why, Try: try}
}

// refuse adds a problem with a field.
func (h *Host) refuse(field, why, try string) {
	h.From.problems = append(h.From.problems, h.Problem(field, why, try))
}

// Hidden is printed in place of a secret.
const Hidden = "(secret)"

// Public returns h without what may be secret: the values of plugins' options. Only a plugin knows
// which of its options are secret, so the names alone are shown. No other field holds a secret. It
// also returns the texts in what it left out, because messages may quote them.
func (h *Host) Public() (public Host, hidden []string) {
	public = *h
	public.Plugins = maps.Clone(h.Plugins)
	for name, p := range public.Plugins {
		var options map[string]json.RawMessage
		if json.Unmarshal(p.Options, &options) != nil {
			continue // there are none: check lets nothing else be options
		}
		for option, value := range options {
			for _, quoted := range jsonText.FindAll(value, -1) {
				var text string
				_ = json.Unmarshal(quoted, &text) // it is a string of a valid value
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
