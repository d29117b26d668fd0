// SPDX-License-Identifier: Apache-2.0

package frame

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/masquerade"
	"github.com/pointsman/pointsman/plugins/internal/sysctl"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/ledger"
)

// A Mode is what one dataplane is, where it differs from the others.
type Mode[P any] struct {
	Description sdk.Description

	// Open begins a session: it finds out what this node has for the mode, and changes
	// nothing. A *sdk.Refusal says what is missing.
	Open func(context.Context, sdk.Setup, Env) (Session[P], error)

	// Sweep is Cleanup, of the whole node, with or without a session. It names what goes;
	// a dry run only names it. It gives the kernel's parameters back by Env.GiveBack, when
	// that does no harm.
	Sweep func(context.Context, sdk.Leftovers, Env) ([]string, error)

	// Elsewhere removes the rules of the mode that these tools write, of a backend that the
	// session does not use, and names them. Nil: the mode has one backend, or none.
	Elsewhere func(context.Context, []iptables.Tool, Env) ([]string, error)
}

// A Session is what Open found.
type Session[P any] struct {
	// Families are what is written to. Each IP family that the node has is served by one.
	// One that was in the session before as well goes on with what it has.
	Families []Family[P]

	// Settings are the kernel's parameters that the mode asks for on a node. Nil: none.
	Settings func(sdk.Node) sysctl.Settings

	// Limits are those that hold here. Nil: those of the Description.
	Limits []sdk.Limit

	// Unlocked says that nothing which is written outlives the process, so that there is
	// no writer's lock: two processes do not meet.
	Unlocked bool

	// Wake has the monitor probe at once, and is never closed. Nil: it does so at its own
	// pace.
	Wake <-chan struct{}
}

// An Env is what the frame does for a mode.
type Env struct {
	Log    *slog.Logger
	Dir    string         // of the ledger
	Ledger *ledger.Ledger // nil in Sweep, which may run without a session; and where there is none, which only an Unlocked one copes with

	Step    func()       // says that the present call gets on
	Waiting func(string) // says what the present call waits for; nothing, if it is empty
	Note    func(string) // says what was observed as the session began, and costs no Service

	// Services returns how many Services this node is to serve, in all IP families. Only Want may call it.
	Services func() int

	// Take sets kernel parameters for the mode, and notes those that cannot be set from here.
	Take func(sysctl.Settings) error

	// GiveBack gives back all parameters that the mode took, and names them.
	GiveBack func(sdk.Leftovers) ([]string, error)
}

// A Family makes the kernel follow what is desired in one IP family, or in both.
type Family[P any] interface {
	// Serves reports whether Services of an IP family are this Family's.
	Serves(sdk.Family) bool

	// Hold says that this process is the writer, and hands over the lock, which every
	// program that writes must hold too; nil: it is the writer no more. Where the mode is
	// Unlocked the lock has no file.
	Hold(*ledger.Lock)

	// Adopt takes parts of what the kernel has for what this process did, and says which
	// role the kernel shows. After it, all of Plan's comparison is made anew for them. It
	// writes nothing, and is called without the writer's lock, too. Without parts only the role and
	// what Ours says need be read.
	Adopt(context.Context, Parts) (sdk.Role, error)

	// Ours reports whether the last Adopt found something that only this dataplane writes.
	// The rules of a kube-proxy, which it adopts to take its place, do not count.
	Ours() bool

	// Node and Role say for which node, and for which role, is planned from now on. They
	// may read the node. Role is never told Yielded.
	Node(sdk.Node) error
	Role(sdk.Role) error

	// Want is the P of a Service, for the node that was told last. An error is this
	// Service's alone.
	Want(sdk.Service) (P, error)

	// Pieces are the Ps that were put, and are not of Services that are gone. They are
	// only read.
	Pieces() map[sdk.Name]P

	// Keep is the P by which the kernel serves a Service that this process was never told
	// of, as far as Adopt found out.
	Keep(sdk.Name) P

	// Put says that these Ps are desired, in place of those that their Services had; the
	// zero P: none.
	Put(map[sdk.Name]P)

	// Plan is what leads from what the kernel has to what is desired, of what was touched
	// by Adopt, Node, Role and Put since a plan was applied to its end.
	Plan() Plan

	// Probe looks, at next to no cost, for signs that the kernel does not have what was
	// written, and does small work that is due by itself.
	Probe(context.Context) Finding

	// Masquerade is the dataplane's hold on the chains that all dataplanes share; nil: its rules lead to none of them.
	// Adopt doubts it when it reads rules.
	Masquerade() *masquerade.Hold

	// Tell adds metrics to a report, and notes of what an operator should know and what costs no Service, a sentence each.
	Tell(*sdk.Report)
}

// A Plan is what is to be done in one family.
type Plan interface {
	// Steps are what it does, one a line, for people. None: nothing.
	Steps() []string

	// RemovedUDP returns the UDP frontends that the kernel has and will not have after the plan. It is called
	// before Apply. A frontend that the plan removes and adds again is not among them.
	RemovedUDP() []netip.AddrPort

	// Apply does it; it may be empty. The Services in failed were not taken, each for a
	// reason of its own, and everything else was. Any error means that it is not known
	// what the kernel has; a *Refused, that one of several changes that go in together was
	// not taken.
	Apply(context.Context) (failed []sdk.Failure, err error)
}

// Refused is the error of a Plan of which the kernel refused a part, and it is not certain
// which Service that belongs to.
type Refused struct {
	Suspects []sdk.Name // the Services that it may belong to; none: it cannot be told
	Err      error
}

func (r *Refused) Error() string { return r.Err.Error() }

// Unwrap is what the kernel said.
func (r *Refused) Unwrap() error { return r.Err }

// Parts are a set of what a family can read by itself. Which bit is which part is the
// family's own affair.
type Parts uint32

// All is everything.
const All = ^Parts(0)

// A Finding is what a probe found. The zero value: nothing.
type Finding struct {
	// Lost are the parts that may not be as they were written, and Why says how that was
	// noticed. They are read, and what differs is written again.
	Lost Parts
	Why  string

	// Unsure says that this is no observation: parts in Lost are only suspected; where there are none nothing was looked at,
	// because other programs are at work.
	Unsure bool

	// Moved says that the node is otherwise, in what the family itself reads of it: Node is
	// called again, and all Services are rendered again.
	Moved bool

	// Due says that there is something to write, though nothing was lost.
	Due bool

	// Stale says that UDP flows may lead nowhere when what is due is written: those of all
	// Services are looked at.
	Stale bool
}

// A Tracked is a Family behind which the kernel tracks connections, and remembers where it sent them.
type Tracked interface {
	// Flows are the established connections that this dataplane serves and that were there
	// when draining began; fresh says that it begins. services are all that there are.
	Flows(services map[sdk.Name]sdk.Service, fresh bool) (int, error)

	// Forget ends the UDP flows to these Services of family that lead to an address which does
	// not serve, and says how many those were.
	Forget(family sdk.Family, services []sdk.Service, step func()) (int, error)

	// ForgetEarly deletes the entries of TCP connections to these Services of family that began
	// before the Services were there (conntrack.ForgetEarly), and returns their number.
	ForgetEarly(family sdk.Family, services []sdk.Service, step func()) (int, error)
}

// OnLink reports whether addr means another machine on each link, as IPv6's link-local
// addresses do: to listen there, or to have a virtual server there, takes the link's name
// too. 169.254.0.0/16 has no such names.
func OnLink(addr netip.Addr) bool { return addr.Is6() && addr.IsLinkLocalUnicast() }

// NodePortPrefixes returns the parts of a prefix of the node's that take node ports.
func NodePortPrefixes(n sdk.Node, own netip.Prefix) (all []netip.Prefix) {
	for _, p := range n.NodePorts {
		switch {
		case p.Bits() <= own.Bits() && p.Contains(own.Addr()):
			all = append(all, own)
		case own.Contains(p.Addr()):
			all = append(all, p.Masked())
		}
	}
	return all
}

// Localhost reports whether node ports are to be had on 127.0.0.1. IPv6 has no way to do it.
func Localhost(f sdk.Family, n sdk.Node) bool {
	return f == sdk.IPv4 && n.TakesNodePorts(netip.AddrFrom4([4]byte{127, 0, 0, 1}))
}

// ParseOptions reads the options that the host's file has for mode into o, which has the
// defaults. What o has no field for is refused.
func ParseOptions(mode string, data []byte, o any) error {
	if len(bytes.TrimSpace(data)) == 0 {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(o); err != nil {
		return &sdk.Refusal{Field: "options", Why: err.Error(), Try: "pointsman plugin info " + mode + ", for what it takes"}
	}
	return nil
}

// TooMany refuses a Service with longer lists of endpoints than most.
func TooMany(svc sdk.Service, most int, try string) error {
	n := max(len(svc.Cluster), len(svc.Local))
	if n <= most {
		return nil
	}
	return &sdk.Refusal{
		Field: "endpoints",
		Why:   fmt.Sprintf("%d are more than the %d that this dataplane serves for one port of a Service", n, most),
		Try:   try,
	}
}
