// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"slices"
	"strings"
	"time"
)

// A Service is the desired state of a Kubernetes Service on this node.
type Service struct {
	Namespace string   `json:"namespace"`
	Name      string   `json:"name"`
	Ports     []Port   `json:"ports"`
	Problems  []string `json:"problems,omitempty"`
}

// PortName returns the name of a port as in events: "shop/web:http/tcp4".
func (s Service) PortName(p Port) string {
	name := s.Namespace + "/" + s.Name
	if p.Name != "" {
		name += ":" + p.Name
	}
	return name + "/" + p.Network
}

// Mentions reports whether text occurs in the name of port p, its frontends or its used
// endpoints.
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
	Local     []string `json:"local"`   // endpoints for the Local policy
	Ready     int      `json:"ready"`
	Total     int      `json:"total"`

	Policies        []string  `json:"policies"`                  // policies of its frontends: cluster, local
	AffinitySeconds int       `json:"affinitySeconds,omitempty"` // zero if none
	State           string    `json:"state"`                     // served, pending, no endpoints, or a Problem's reason
	Since           time.Time `json:"since,omitzero"`            // since when it is in State
	Why             string    `json:"why,omitempty"`

	Endpoints []Endpoint   `json:"endpoints,omitempty"` // all endpoints; only in a ServiceDetail
	Kernel    []Programmed `json:"kernel,omitempty"`    // what the dataplane read back; only in a ServiceDetail
}

// An Endpoint is an endpoint of a Service port, on any node.
type Endpoint struct {
	Address     string `json:"address"`
	Node        string `json:"node,omitempty"`
	Zone        string `json:"zone,omitempty"`
	Ready       bool   `json:"ready"`
	Serving     bool   `json:"serving"`
	Terminating bool   `json:"terminating"`
	NotCluster  string `json:"notCluster,omitempty"` // why it is not used for the Cluster policy; empty if it is
	NotLocal    string `json:"notLocal,omitempty"`   // why it is not used for the Local policy; empty if it is
}

// Condition describes the three conditions of e.
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

// A Programmed frontend is what the dataplane has just read back from the kernel or its
// sockets.
type Programmed struct {
	Frontend  string   `json:"frontend"`
	Endpoints []string `json:"endpoints"`
	Differs   string   `json:"differs,omitempty"` // how it differs from the desired state
}

// A ServiceDetail is one Service with its sources and its state in the dataplane.
type ServiceDetail struct {
	Meta
	Service
	EndpointSlices []string `json:"endpointSlices"`
	HealthPort     int      `json:"healthCheckNodePort,omitempty"` // zero if it is not served
	LocalReady     int      `json:"localReady"`                    // ready endpoints on this node, as served at that port
	Notes          []string `json:"notes,omitempty"`               // parts that are left out on purpose
	KernelUnread   string   `json:"kernelUnread,omitempty"`        // why Kernel is missing
	Events         []Event  `json:"events"`                        // events of the Service, the latest last
}

// A ServiceList is all known Services.
type ServiceList struct {
	Meta
	Items   []Service `json:"items"`
	Unknown string    `json:"unknown,omitempty"` // why the list is incomplete; empty if it is complete
}
