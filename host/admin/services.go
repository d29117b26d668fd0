// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"slices"
	"strings"
	"time"
)

// A Service is one Kubernetes Service as it is to be served here.
type Service struct {
	Namespace string   `json:"namespace"`
	Name      string   `json:"name"`
	Ports     []Port   `json:"ports"`
	Problems  []string `json:"problems,omitempty"`
}

// PortName reads as events name a port of s: "shop/web:http/tcp4".
func (s Service) PortName(p Port) string {
	name := s.Namespace + "/" + s.Name
	if p.Name != "" {
		name += ":" + p.Name
	}
	return name + "/" + p.Network
}

// Mentions reports whether port p of s has text in its name, its frontends or the endpoints it uses.
func (s Service) Mentions(p Port, text string) bool {
	has := func(word string) bool { return strings.Contains(word, text) }
	return has(s.PortName(p)) || slices.ContainsFunc(p.Frontends, has) || slices.ContainsFunc(p.Cluster, has) || slices.ContainsFunc(p.Local, has)
}

// A Port is one port of a Service in one IP family.
type Port struct {
	Name      string   `json:"name"`
	Network   string   `json:"network"` // tcp4, udp6, …
	Frontends []string `json:"frontends"`
	Cluster   []string `json:"cluster"` // endpoints for the Cluster policy
	Local     []string `json:"local"`   // for the Local policy
	Ready     int      `json:"ready"`
	Total     int      `json:"total"`

	Policies        []string  `json:"policies"`                  // of its frontends: cluster, local
	AffinitySeconds int       `json:"affinitySeconds,omitempty"` // zero: none
	State           string    `json:"state"`                     // served, pending, no endpoints, or a Problem's reason
	Since           time.Time `json:"since,omitzero"`            // of the state
	Why             string    `json:"why,omitempty"`

	Endpoints []Endpoint   `json:"endpoints,omitempty"` // all that there are; of a ServiceDetail alone
	Kernel    []Programmed `json:"kernel,omitempty"`    // likewise
}

// Destination returns a frontend of p as ParseQuestion reads it: "10.96.0.10:53/udp", of
// "cluster-ip 10.96.0.10:53" in network udp4. A node port has no one address, and none is returned.
func (p Port) Destination(frontend string) (string, bool) {
	words := strings.Fields(frontend)
	if len(words) < 2 || strings.HasPrefix(words[1], "*") {
		return "", false
	}
	protocol := strings.TrimRight(p.Network, "46")
	if protocol == "tcp" {
		return words[1], true
	}
	return words[1] + "/" + protocol, true
}

// An Endpoint is one that a port of a Service has, here or elsewhere.
type Endpoint struct {
	Address     string `json:"address"`
	Node        string `json:"node,omitempty"`
	Zone        string `json:"zone,omitempty"`
	Ready       bool   `json:"ready"`
	Serving     bool   `json:"serving"`
	Terminating bool   `json:"terminating"`
	NotCluster  string `json:"notCluster,omitempty"` // why it is not used for the Cluster policy; empty: it is
	NotLocal    string `json:"notLocal,omitempty"`   // likewise for the Local policy
}

// Condition returns the three conditions of e in words.
func (e Endpoint) Condition() string {
	switch {
	case e.Terminating && e.Serving:
		return "terminating, serving"
	case e.Terminating:
		return "terminating"
	case e.Ready:
		return "ready"
	}
	return "not ready"
}

// A Programmed frontend is one as the dataplane has just read it from where it serves.
type Programmed struct {
	Frontend  string   `json:"frontend"`
	Endpoints []string `json:"endpoints"`
	Differs   string   `json:"differs,omitempty"` // from what is to be served
}

// A ServiceDetail is one Service, where it came from and what became of it.
type ServiceDetail struct {
	Meta
	Service
	EndpointSlices []string `json:"endpointSlices"`
	HealthPort     int      `json:"healthCheckNodePort,omitempty"` // that is answered
	LocalReady     int      `json:"localReady"`                    // endpoints of this node that are ready, as answered there
	Notes          []string `json:"notes,omitempty"`               // what of it is left out on purpose
	KernelUnread   string   `json:"kernelUnread,omitempty"`        // why Kernel is missing
	Events         []Event  `json:"events"`                        // its own, the latest last
}

// A ServiceList is all Services that are known.
type ServiceList struct {
	Meta
	Items   []Service `json:"items"`
	Unknown string    `json:"unknown,omitempty"` // why it is not known yet which Services there are
}
