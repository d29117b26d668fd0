// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/pointsman/pointsman/host/bounded"
	"github.com/pointsman/pointsman/host/bundle"
)

// secretNames are environment variables whose values are taken for secret.
var secretNames = regexp.MustCompile(`(?i)token|secret|pass|key|cred|auth`)

// environmentSecrets are the values of a process's environment that are taken for secret. None, where this
// process may not read it.
func environmentSecrets(path string) (secrets []string) {
	text, _ := os.ReadFile(path)
	for entry := range strings.SplitSeq(string(text), "\x00") {
		if name, value, _ := strings.Cut(entry, "="); secretNames.MatchString(name) {
			secrets = append(secrets, value)
		}
	}
	return secrets
}

// unreadSecrets are what may be secret in a config file that cannot be used: what is said of it may
// have parts of it.
func unreadSecrets(path string) []string {
	text, err := bounded.ReadFile(path, mostSecret)
	if err != nil {
		return nil
	}
	var fields map[string]any
	if yaml.Unmarshal(text, &fields) != nil {
		return []string{string(text)} // line by line
	}
	asJSON, err := json.Marshal(fields)
	if err != nil {
		return []string{string(text)}
	}
	_, secrets, _ := bundle.Settings(asJSON, nil)
	return append(secrets, kubeconfigSecrets(kubeconfigIn(asJSON))...)
}

// podToken is where a pod has the token of its service account.
const podToken = "/var/run/secrets/kubernetes.io/serviceaccount/token"

// mostSecret is how large a file with a secret may be.
const mostSecret = 1 << 20

// kubeconfigSecrets are the credentials in a kubeconfig and in the files that it names; without one,
// those of a pod.
func kubeconfigSecrets(path string, cluster bool) []string {
	switch {
	case !cluster:
		return nil
	case path == "":
		return contents(podToken)
	}
	text, err := bounded.ReadFile(path, mostSecret)
	if err != nil {
		return nil
	}
	var config struct {
		Users any `yaml:"users"`
	}
	if yaml.Unmarshal(text, &config) != nil {
		return []string{string(text)} // line by line
	}
	secrets, files := bundle.Credentials(config.Users)
	for _, file := range files {
		if !filepath.IsAbs(file) {
			file = filepath.Join(filepath.Dir(path), file)
		}
		secrets = append(secrets, contents(file)...)
	}
	return secrets
}

// webSecret is the token of the status page, where settings have a host keep it.
func webSecret(text []byte) []string {
	var s struct{ StateDir string }
	if json.Unmarshal(text, &s) != nil || s.StateDir == "" {
		return nil
	}
	return contents(webToken(s.StateDir))
}

func contents(path string) []string {
	text, err := bounded.ReadFile(path, mostSecret)
	if err != nil {
		return nil
	}
	return []string{string(text)}
}

// kernelParameters are those that Services depend on, below /proc/sys.
var kernelParameters = []string{
	"kernel/osrelease", "kernel/version", "kernel/arch",
	"net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding", "net/ipv6/conf/all/disable_ipv6",
	"net/ipv4/conf/all/rp_filter", "net/ipv4/conf/default/rp_filter", "net/ipv4/conf/all/route_localnet",
	"net/ipv4/conf/all/arp_ignore", "net/ipv4/conf/all/arp_announce", "net/ipv4/vs/conntrack",
	"net/bridge/bridge-nf-call-iptables", "net/bridge/bridge-nf-call-ip6tables",
	"net/netfilter/nf_conntrack_max", "net/netfilter/nf_conntrack_count", "net/netfilter/nf_conntrack_tcp_be_liberal",
	"net/ipv4/ip_local_port_range", "net/ipv4/ip_local_reserved_ports",
}

// modules are the kernel's modules that Services may depend on, by how they begin.
var modules = regexp.MustCompile(`^(ip_vs|ip_set|ip_tables|ip6_tables|ip6?table_|ip6?t_|xt_|nf_|nft_|nfnetlink|x_tables|br_netfilter|bridge|dummy|veth|vxlan|wireguard)`)

// A kernelState is what a kernel says of itself.
type kernelState struct {
	Parameters map[string]string `json:"parameters"` // by their path below /proc/sys; those that there are
	Modules    []string          `json:"modules"`
	Load       string            `json:"load"`
	Memory     []string          `json:"memory"`
}

// kernelFacts reads what a kernel says of itself at proc.
func kernelFacts(proc string) kernelState {
	line := func(path string) string {
		text, _ := os.ReadFile(filepath.Join(proc, path))
		return strings.TrimSpace(string(text))
	}
	facts := kernelState{Parameters: make(map[string]string), Modules: []string{}, Load: line("loadavg")}
	for _, p := range kernelParameters {
		if value := line("sys/" + p); value != "" {
			facts.Parameters[p] = value
		}
	}
	for module := range strings.Lines(line("modules")) {
		if name, _, _ := strings.Cut(module, " "); modules.MatchString(name) {
			facts.Modules = append(facts.Modules, name)
		}
	}
	for entry := range strings.Lines(line("meminfo")) {
		if strings.HasPrefix(entry, "Mem") {
			facts.Memory = append(facts.Memory, strings.TrimSpace(entry))
		}
	}
	return facts
}
