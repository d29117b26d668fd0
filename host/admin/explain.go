// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"cmp"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"time"
)

// A Question is the first packet of a connection, for which an Explanation is requested.
type Question struct {
	Caller   string         `json:"caller"`        // CallerAny, CallerNode, CallerPod or CallerOutside
	From     netip.Addr     `json:"from,omitzero"` // the caller's address; optional for CallerNode
	Pod      string         `json:"pod,omitempty"` // NAMESPACE/NAME of the calling pod; kubectl-pointsman looks up its address
	To       netip.AddrPort `json:"to"`            // the destination
	Protocol string         `json:"protocol"`      // tcp, udp or sctp
	Try      bool           `json:"try,omitempty"` // also try a TCP connection to the endpoints
}

// Values of Question.Caller: the location of the caller.
const (
	CallerAny     = "any"     // derived from its address
	CallerNode    = "node"    // a process of this node
	CallerPod     = "pod"     // a pod of this node
	CallerOutside = "outside" // another machine
)

// ParseQuestion parses a packet from two words: the caller ("10.244.1.7", "node",
// "pod:10.244.1.7", "outside:198.18.0.1", for kubectl-pointsman "shop/web-7d4kx") and the
// destination ("10.96.0.10:80", "[fd00::1]:53/udp").
func ParseQuestion(from, to string) (Question, error) {
	q := Question{Caller: CallerAny}
	kind, addr, named := strings.Cut(from, ":")
	switch {
	case from == CallerNode:
		q.Caller, addr = CallerNode, ""
	case isPod(strings.TrimPrefix(from, CallerPod+":")):
		q.Pod, addr = strings.TrimPrefix(from, CallerPod+":"), ""
	case named && (kind == CallerPod || kind == CallerOutside || kind == CallerNode):
		q.Caller = kind
	default:
		addr = from
	}
	var err error
	if addr != "" {
		if q.From, err = netip.ParseAddr(addr); err != nil || q.From.Zone() != "" {
			return q, badQuestion("%q is not a caller: want an address, node, pod:ADDRESS or outside:ADDRESS", from)
		}
		q.From = q.From.Unmap()
	} else if q.Caller != CallerNode && q.Pod == "" {
		return q, badQuestion("%q is not a caller: want an address after %s:", from, kind)
	}
	if name, _, _ := strings.Cut(to, ":"); isPod(name) && !startsWithAddr(name) {
		return q, &Error{Code: http.StatusBadRequest, What: to + " is no address", Why: "want one at which the Service is reached", Try: "pointsman service show " + name}
	}
	dest, protocol, _ := strings.Cut(to, "/")
	q.Protocol = cmp.Or(strings.ToLower(protocol), "tcp")
	if q.Protocol != "tcp" && q.Protocol != "udp" && q.Protocol != "sctp" {
		return q, badQuestion("%q has no protocol of Services: want tcp, udp or sctp after the slash", to)
	}
	if q.To, err = netip.ParseAddrPort(dest); err != nil || q.To.Port() == 0 || q.To.Addr().Zone() != "" {
		return q, badQuestion("%q is not a destination: want ADDRESS:PORT, such as 10.96.0.10:80, [fd00::1]:80 or 10.96.0.10:53/udp", to)
	}
	q.To = netip.AddrPortFrom(q.To.Addr().Unmap(), q.To.Port())
	if q.From.IsValid() && q.From.Is4() != q.To.Addr().Is4() {
		return q, badQuestion("%s and %s are in different IP families", q.From, q.To.Addr())
	}
	return q, nil
}

// isPod reports whether a word has the form NAMESPACE/NAME.
func isPod(word string) bool {
	namespace, name, ok := strings.Cut(word, "/")
	return ok && namespace != "" && name != "" && !strings.ContainsAny(word, ":%\\ ") && !strings.Contains(name, "/")
}

// startsWithAddr reports whether the text before a slash is an address, as in "10.96.0.10/udp".
func startsWithAddr(word string) bool {
	before, _, _ := strings.Cut(word, "/")
	_, err := netip.ParseAddr(before)
	return err == nil
}

func badQuestion(format string, args ...any) error {
	return &Error{Code: http.StatusBadRequest, What: fmt.Sprintf(format, args...), Try: "pointsman explain 10.244.1.7 10.96.0.10:80"}
}

// Verdicts of an Explanation, in addition to forward, reject and drop of package sdk.
const (
	VerdictPass       = "pass"        // the packet is not for a Service, so no dataplane handles it
	VerdictCannotTell = "cannot tell" // the verdict depends on facts that the host does not know
)

// An Explanation says what should happen to a packet and why, and what the node really does.
type Explanation struct {
	Meta
	Question
	Service    string      `json:"service,omitempty"`    // the Service port, as events name it; empty if none is reached
	Frontend   string      `json:"frontend,omitempty"`   // the Service's frontend
	Steps      []Step      `json:"steps"`                // decisions that lead to the verdict
	Verdict    string      `json:"verdict"`              // forward, reject, drop, pass, cannot tell
	Endpoints  []Share     `json:"endpoints"`            // the packet is sent to one of them
	Unused     []Unused    `json:"unused,omitempty"`     // endpoints that do not get the packet
	State      string      `json:"state,omitempty"`      // of the Service's port: see Port.State
	Why        string      `json:"why,omitempty"`        // the reason of State
	Programmed *Programmed `json:"programmed,omitempty"` // the frontend as the dataplane has just read it
	Unread     string      `json:"unread,omitempty"`     // why Programmed is missing
	Kernel     *Traced     `json:"kernel,omitempty"`     // the packet's way through the current rules of the node; nil: see Untraced
	Untraced   string      `json:"untraced,omitempty"`   // why Kernel is missing
	Remedies   []string    `json:"remedies,omitempty"`   // what to do if the packet does not reach an endpoint
}

// A Step is one decision on the way to a verdict.
type Step struct {
	Question string `json:"question"`
	Answer   string `json:"answer"`
}

// A Share is an endpoint that a packet may be sent to.
type Share struct {
	Address    string  `json:"address"`
	Share      float64 `json:"share"`           // fraction of new connections without affinity; the sum is 1
	Masquerade bool    `json:"masquerade"`      // the endpoint sees this node's address instead of the caller's
	Tried      string  `json:"tried,omitempty"` // result of a connection to it; empty if not tried
}

// A Traced is the packet's way through the current rules of the node, including those of other
// programs.
type Traced struct {
	Ways        []Way    `json:"ways"`                  // several if rules choose at random; one that Differs is first
	Differs     string   `json:"differs,omitempty"`     // how a way differs from the verdict
	Notes       []string `json:"notes,omitempty"`       // what else may decide, besides the rules
	Connections []string `json:"connections,omitempty"` // connections from the caller to the destination in conntrack
}

// A Way is one possible way of the packet.
type Way struct {
	Verdict    string   `json:"verdict"` // forward, reject, drop
	To         string   `json:"to"`      // the destination after translation
	Masquerade bool     `json:"masquerade"`
	Then       string   `json:"then,omitempty"`  // what decides next but is not traced, such as IPVS
	Steps      []string `json:"steps,omitempty"` // matching rules and routes, in order; only for the first ways
}

// Watched is a packet that a watch reports.
type Watched struct {
	Time     time.Time `json:"time"`
	Verdict  string    `json:"verdict"`            // forward, reject, drop
	Protocol string    `json:"protocol,omitempty"` // empty: a protocol that no Service can have
	From     string    `json:"from"`
	To       string    `json:"to"`                // the destination before translation
	At       string    `json:"at"`                // the rule that dropped or rejected it; for forward, the destination after translation
	Service  string    `json:"service,omitempty"` // the Service port of the destination, if there is one
	Reason   string    `json:"reason,omitempty"`  // as in pointsman_dropped_packets_total; empty if the rule is not one of Pointsman's
	Why      string    `json:"why,omitempty"`     // the reason in words
}

// An Unused endpoint does not get the packet.
type Unused struct {
	Address string `json:"address"`
	Why     string `json:"why"`
}
