// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"context"
	"net/http"
	"net/netip"
)

// A State is everything that a plugin is sent first in a session. `pointsman state dump` writes it, and
// `pointsman plugin call --state` sends it; docs/debugging.md shows one.
type State struct {
	Meta
	Node     StateNode      `json:"node"`
	Services []StateService `json:"services"`
}

// A StateNode is what a plugin is sent of the node. The fields are those of sdk.Node.
type StateNode struct {
	Name          string         `json:"name"`
	Addresses     []netip.Addr   `json:"addresses,omitempty"`
	NodePorts     []netip.Prefix `json:"nodePorts,omitempty"` // the ranges of addresses that take node ports
	PodRanges     []netip.Prefix `json:"podRanges,omitempty"` // whose addresses count as pods of this node
	PodBridge     string         `json:"podBridge,omitempty"`
	PodInterface  string         `json:"podInterface,omitempty"` // the start of its name
	PodCIDRs      []netip.Prefix `json:"podCIDRs,omitempty"`
	MasqueradeAll bool           `json:"masqueradeAll,omitempty"`
	MasqueradeBit uint8          `json:"masqueradeBit"`
	ServiceCIDRs  []netip.Prefix `json:"serviceCIDRs,omitempty"`
	Conntrack     StateConntrack `json:"conntrack,omitzero"`
}

// A StateConntrack is what the node asks of the kernel's connection tracking; times are such as "1h0m0s".
type StateConntrack struct {
	Max                   uint32 `json:"max,omitempty"`
	TCPEstablishedTimeout string `json:"tcpEstablishedTimeout,omitempty"`
	TCPCloseWaitTimeout   string `json:"tcpCloseWaitTimeout,omitempty"`
	TCPBeLiberal          bool   `json:"tcpBeLiberal,omitempty"`
	UDPTimeout            string `json:"udpTimeout,omitempty"`
	UDPStreamTimeout      string `json:"udpStreamTimeout,omitempty"`
}

// A StateService is one port of a Service in one IP family. The fields are those of sdk.Service.
type StateService struct {
	Namespace  string            `json:"namespace"`
	Service    string            `json:"service"`
	Port       string            `json:"port,omitempty"`
	Protocol   string            `json:"protocol"` // tcp, udp, sctp
	Family     string            `json:"family"`   // ipv4, ipv6
	Frontends  []StateFrontend   `json:"frontends"`
	Cluster    []StateEndpoint   `json:"cluster"`
	Local      []StateEndpoint   `json:"local,omitempty"`
	Serving    []netip.Addr      `json:"serving,omitempty"`
	Affinity   string            `json:"affinity,omitempty"` // such as "3h0m0s"
	HealthPort uint16            `json:"healthPort,omitempty"`
	Hints      map[string]string `json:"hints,omitempty"`
}

// A StateFrontend is an address and port at which a Service is reached.
type StateFrontend struct {
	Kind    string         `json:"kind"` // cluster-ip, node-port, external-ip, load-balancer
	Address netip.AddrPort `json:"address"`
	Policy  string         `json:"policy"` // cluster, local
	Sources []netip.Prefix `json:"sources,omitempty"`
}

// A StateEndpoint is an address and port that serves a Service.
type StateEndpoint struct {
	Address netip.AddrPort `json:"address"`
	OnNode  bool           `json:"onNode,omitempty"`
}

// State asks what the dataplane that serves would be sent if it began a session now.
func (c *Client) State(ctx context.Context) (State, error) {
	return ask[State](ctx, c, http.MethodGet, "state")
}
