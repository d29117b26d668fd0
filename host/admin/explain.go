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

// A Question is a packet: the first one of a connection, of which an Explanation is asked.
type Question struct {
	Caller   string         `json:"caller"`        // CallerAny, CallerNode, CallerPod or CallerOutside
	From     netip.Addr     `json:"from,omitzero"` // the caller's address; of the node it may be left out
	Pod      string         `json:"pod,omitempty"` // NAMESPACE/NAME of the caller, whose address kubectl-pointsman looks up
	To       netip.AddrPort `json:"to"`            // where it is sent
	Protocol string         `json:"protocol"`      // tcp, udp or sctp
	Try      bool           `json:"try,omitempty"` // whether to connect to the endpoints, over TCP
}

// Where a caller stands.
const (
	CallerAny     = "any"     // its address says so
	CallerNode    = "node"    // a process of this node
	CallerPod     = "pod"     // a pod of this node
	CallerOutside = "outside" // another machine
)

// ParseQuestion reads a packet as words: who sends it ("10.244.1.7", "node", "pod:10.244.1.7",
// "outside:198.18.0.1", for kubectl-pointsman "shop/web-7d4kx"), and where to ("10.96.0.10:80", "[fd00::1]:53/udp").
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
			return q, badQuestion("%q names no caller: want an address, node, pod:ADDRESS or outside:ADDRESS", from)
		}
		q.From = q.From.Unmap()
	} else if q.Caller != CallerNode && q.Pod == "" {
		return q, badQuestion("%q names no caller: want an address behind %s:", from, kind)
	}
	if name, _, _ := strings.Cut(to, ":"); isPod(name) && !startsWithAddr(name) {
		return q, &Error{Code: http.StatusBadRequest, What: to + " is no address", Why: "want one at which the Service is reached", Try: "pointsman service show " + name}
	}
	dest, protocol, _ := strings.Cut(to, "/")
	q.Protocol = cmp.Or(strings.ToLower(protocol), "tcp")
	if q.Protocol != "tcp" && q.Protocol != "udp" && q.Protocol != "sctp" {
		return q, badQuestion("%q has no protocol of Services: want tcp, udp or sctp behind the slash", to)
	}
	if q.To, err = netip.ParseAddrPort(dest); err != nil || q.To.Port() == 0 || q.To.Addr().Zone() != "" {
		return q, badQuestion("%q is nowhere to send to: want ADDRESS:PORT, such as 10.96.0.10:80, [fd00::1]:80 or 10.96.0.10:53/udp", to)
	}
	q.To = netip.AddrPortFrom(q.To.Addr().Unmap(), q.To.Port())
	if q.From.IsValid() && q.From.Is4() != q.To.Addr().Is4() {
		return q, badQuestion("%s and %s are of two IP families, and no packet goes from one to the other", q.From, q.To.Addr())
	}
	return q, nil
}

// isPod reports whether a word is NAMESPACE/NAME.
func isPod(word string) bool {
	namespace, name, ok := strings.Cut(word, "/")
	return ok && namespace != "" && name != "" && !strings.ContainsAny(word, ":%\\ ") && !strings.Contains(name, "/")
}

// startsWithAddr reports whether what stands before a slash is an address: "10.96.0.10/udp".
func startsWithAddr(word string) bool {
	before, _, _ := strings.Cut(word, "/")
	_, err := netip.ParseAddr(before)
	return err == nil
}

func badQuestion(format string, args ...any) error {
	return &Error{Code: http.StatusBadRequest, What: fmt.Sprintf(format, args...), Try: "pointsman explain 10.244.1.7 10.96.0.10:80"}
}

// The verdicts of an Explanation, beside what package sdk calls forward, reject and drop.
const (
	VerdictPass       = "pass"        // it is not sent to a Service, and goes on as if there were none
	VerdictCannotTell = "cannot tell" // it depends on what the host does not know
)

// An Explanation is what is to become of a packet, why, and what the node has instead.
type Explanation struct {
	Meta
	Question
	Service    string      `json:"service,omitempty"`    // the port of one, as events name it; empty: none is reached
	Frontend   string      `json:"frontend,omitempty"`   // of it
	Steps      []Step      `json:"steps"`                // that lead to the verdict
	Verdict    string      `json:"verdict"`              // forward, reject, drop, pass, cannot tell
	Endpoints  []Share     `json:"endpoints"`            // one of which it is sent to
	Unused     []Unused    `json:"unused,omitempty"`     // endpoints that it is not sent to
	State      string      `json:"state,omitempty"`      // of the Service's port, as of a Port
	Why        string      `json:"why,omitempty"`        // it is in that state
	Programmed *Programmed `json:"programmed,omitempty"` // the frontend as the dataplane has just read it
	Unread     string      `json:"unread,omitempty"`     // why Programmed is missing
	Kernel     *Traced     `json:"kernel,omitempty"`     // how it goes through the rules of the node now; nil: see Untraced
	Untraced   string      `json:"untraced,omitempty"`   // why Kernel is missing
	Remedies   []string    `json:"remedies,omitempty"`   // what may be done, where the packet does not reach an endpoint
}

// A Step is one question that is settled on the way to a verdict, and how.
type Step struct {
	Question string `json:"question"`
	Answer   string `json:"answer"`
}

// A Share is an endpoint that a packet may be sent to.
type Share struct {
	Address    string  `json:"address"`
	Share      float64 `json:"share"`           // of new connections without affinity; all are 1
	Masquerade bool    `json:"masquerade"`      // it sees this node in the caller's place
	Tried      string  `json:"tried,omitempty"` // what came back from a connection to it; empty: none was tried
}

// A Traced is how the packet goes through the rules of the node now, also those of other programs.
type Traced struct {
	Ways        []Way    `json:"ways"`                  // several where rules choose at random; one that Differs first
	Differs     string   `json:"differs,omitempty"`     // from the verdict that it should come to
	Notes       []string `json:"notes,omitempty"`       // what may decide besides the rules
	Connections []string `json:"connections,omitempty"` // from the caller to the destination that conntrack has
}

// A Way is one on which the walk ends.
type Way struct {
	Verdict    string   `json:"verdict"` // forward, reject, drop
	To         string   `json:"to"`      // where it goes, after translation
	Masquerade bool     `json:"masquerade"`
	Then       string   `json:"then,omitempty"`  // what decides next and is not followed, such as IPVS
	Steps      []string `json:"steps,omitempty"` // rules that matched and routes, in order; of the first ways only
}

// A Watched packet is one of which a watch tells what became of it.
type Watched struct {
	Time     time.Time `json:"time"`
	Verdict  string    `json:"verdict"`            // forward, reject, drop
	Protocol string    `json:"protocol,omitempty"` // empty: none of Services
	From     string    `json:"from"`
	To       string    `json:"to"`                // where it was sent
	At       string    `json:"at"`                // the rule that dropped or rejected it; of forward, the destination after translation
	Service  string    `json:"service,omitempty"` // the port of one to which it was sent
	Reason   string    `json:"reason,omitempty"`  // as in pointsman_dropped_packets_total; empty: the rule is no such rule of Pointsman
	Why      string    `json:"why,omitempty"`     // the reason in words
}

// An Unused endpoint is one that the packet is not sent to.
type Unused struct {
	Address string `json:"address"`
	Why     string `json:"why"`
}
