// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"time"
)

// A Dataplane makes a node's kernel, or a process on it, serve Services. The package comment
// has the contract, line by line. Calls never overlap, except that Inspect, Trace, Watch and
// Report may run beside another call. Each call honours its context within a second and leaves
// no child process behind.
type Dataplane interface {
	// Configure begins a session. It only reads the node, to find out whether the node can run
	// this dataplane and with which features. It returns the Description given to Serve,
	// reduced to what works on this node. The next Update is a Full. Calling Configure again,
	// even with the same Setup, does not affect what is served.
	//
	// It returns a *Refusal if the node or the options make serving impossible.
	Configure(context.Context, Setup) (Description, error)

	// Sync makes the kernel serve the state that the update leads to. A nil error acknowledges
	// everything except the Services in Result.Failed. After an error the state is unknown, and
	// the next update leads from the last acknowledged revision. ErrResync requests a Full. A
	// *Busy means that nothing was written, because another process holds the writer's lock.
	Sync(context.Context, Update) (Result, error)

	// SetRole sets the role, from any role to any. It cannot report the failure of a single
	// Service: a Sync in Standby names the Services that could not be served in Active, as far
	// as that can be known. An error means that the role has not changed. Every role but
	// Yielded needs the writer's lock, so the error may be a *Busy.
	SetRole(context.Context, Role) error

	// Cleanup removes every trace of this dataplane from the node, and returns descriptions of
	// what it removes, in terms that an operator knows. It works without Configure, in a
	// process that has never served, and never touches foreign objects. While another process
	// holds the writer's lock it removes nothing and returns a *Busy.
	Cleanup(context.Context, Leftovers) ([]string, error)
}

// A Setup begins a session.
type Setup struct {
	// Options are the plugin's options from the host's config file, as JSON with the case of
	// names kept; empty or null if the file has none. They have not been validated against
	// Description.Options: the dataplane must return a *Refusal for unknown options.
	Options []byte

	// StateDir is a directory for the plugin that outlives the process, until Cleanup or a reboot.
	// Configure must not create anything in it: the verb check passes no usable directory.
	StateDir string

	// Gone returns how long the host that began the session has been disconnected, or zero
	// while it is connected. It returns at once and may be called at any time. Nil if that is
	// not known.
	Gone func() time.Duration

	// Log receives the plugin's log. It never blocks and never fails, with or without a host.
	Log *slog.Logger
}

// NotSet is the prefix of those Report.Notes by which a dataplane reports a kernel parameter
// that it could not set and works without. The host creates an event of the node from each.
const NotSet = "cannot set a kernel parameter: "

// A Description describes a dataplane. It does not depend on the node.
type Description struct {
	Name     string    // as in the name of the binary: [a-z0-9-]+
	Version  string    // version of the plugin
	Features []Feature // what it supports in addition to ClusterIPs over TCP
	Limits   []Limit   // how it differs from the contract
	Options  []byte    // JSON schema of Setup.Options, shown to users; nil if it has no options
}

// A Result is the result of a Sync.
type Result struct {
	// Failed are the Services of this update that are not served as desired. What served them
	// before keeps serving them; the host reports and retries them.
	Failed []Failure
}

// A Failure is a Service that could not be served. Err is never nil; a *Refusal in Err means
// that a retry will not help.
type Failure struct {
	Name Name
	Err  error
}

// A Role is the part that a dataplane plays on the node; see contract line 7. The zero value
// means no role.
type Role uint8

// Values of Role.
const (
	Standby  Role = iota + 1 // programmed, receives no new connections, keeps established ones
	Active                   // serves
	Draining                 // like Standby, and counts established connections
	Yielded                  // releases the writer's lock, leaves the kernel as it is

	// Absent is for Report.Shown only: nothing of the dataplane is on the node.
	Absent
)

var roles = []string{Standby: "standby", Active: "active", Draining: "draining", Yielded: "yielded", Absent: "absent"}

func (r Role) String() string { return word(roles, uint8(r), "role") }

// Known reports whether r is a role that SetRole can set in this version.
func (r Role) Known() bool { return r != Absent && known(roles, uint8(r)) }

// Leftovers are the options of Cleanup.
type Leftovers struct {
	KubeProxy bool // also remove what kube-proxy left in the mode that this dataplane replaces
	DryRun    bool // only return the descriptions
}

// An Inspector can read back what it serves, from the kernel and not from its memory. Inspect
// calls the function once for each frontend, in any order, and stops at the first error that
// the function returns.
//
// In Standby it names what it would serve if it were Active now: a host compares that with what
// it sent, and swaps to the dataplane only if they are equal. Rules that receive no packets yet
// are read from the kernel as well; a dataplane that has nothing in the kernel in Standby, such
// as a relay, names what it has prepared. A Service in Result.Failed is not named, unless it is
// still served as before.
type Inspector interface {
	Inspect(context.Context, func(Served) error) error
}

// A Served is a frontend as the kernel serves it. Endpoints are those for a caller to whom the
// frontend's policy applies, sorted; empty means that callers are rejected or dropped.
type Served struct {
	Name      Name
	Frontend  Frontend
	Endpoints []netip.AddrPort
}

// A Tracer can trace the first packet of a connection through the current rules of iptables and
// nf_tables in the kernel, including those of other programs, in the kernel's order of hooks
// and priorities. It names, but does not follow, other mechanisms such as IPVS or a process
// that relays connections. Trace may run beside another call, like Inspect.
type Tracer interface {
	Trace(context.Context, Packet) (Traced, error)
}

// A Packet is the first packet of a connection.
type Packet struct {
	Protocol Protocol
	From, To netip.AddrPort // the port of From is zero if not known
	Origin   Origin         // OnNode if a process of the node sends it
	In       string         // the input interface unless OnNode; empty means the interface by which replies to From would leave
}

// A Traced is the trace of a packet.
type Traced struct {
	Ways        []Way    // all possible ways; several if rules choose at random
	Notes       []string // other mechanisms that may decide, such as an XDP program, one sentence each
	Connections []string // connections from the caller to the destination in conntrack, which skip the nat rules
}

// A Way is one possible way of a packet.
type Way struct {
	Verdict    Verdict        // Forward if no rule stops the packet
	To         netip.AddrPort // the destination after translation; Packet.To if not translated
	Masquerade bool           // the receiver sees the node's address instead of the caller's
	Then       string         // what decides next but is not traced, such as IPVS; empty if Verdict is final
	Steps      []string       // matching rules and routes, in order, in the syntax of the operator's tools; only for the first ways
}

// A Watcher reports what rules in the kernel, including those of other programs, do with
// packets while it watches. Watch calls the function for packets with the protocol, source
// address and destination of the given Packet. The zero Packet selects all packets that begin
// a connection or belong to none, and of these only dropped and rejected ones are reported. On
// a busy node Watch samples. It returns the first error of the function, or nil when its
// context ends. The kernel removes what Watch adds to it when the process ends, even if the
// process is killed.
type Watcher interface {
	Watch(context.Context, Packet, func(WatchedPacket) error) error
}

// A WatchedPacket is a packet that has passed all rules, or that a rule dropped or rejected.
// Its Protocol is zero if no Service can have that protocol. Of established TCP connections
// only dropped and rejected packets are reported.
type WatchedPacket struct {
	Packet
	Verdict Verdict
	At      string // the rule that dropped or rejected it, as an operator finds it; for Forward, the destination after translation
	Reason  string // one of DropReasons; empty: another one
}

// A Reporter reports its condition. Report is called each second, beside other calls, and must
// return at once.
type Reporter interface {
	Report() Report
}

// A Report is the condition of a dataplane.
type Report struct {
	Progress uint64   // grows while a call makes progress; zero if the dataplane never reports it. A call without progress for seconds counts as hung, and the process is killed
	Waiting  string   // what the current call waits for, such as another tool's lock; empty if nothing
	Flows    int      // while Draining: number of its own established connections that are left
	Repaired uint64   // number of times that it reverted another program's changes (contract line 12)
	Repair   string   // what it reverted last, and which program had made the change if the kernel reports that
	Lost     string   // what the last check found removed or changed by another program; empty if nothing
	Samples  []Sample // metrics, which the host publishes on its metrics port

	// Shown is the role that the node itself shows, read from objects that only this dataplane
	// writes: Standby, Active, Draining or Absent. It is zero if the dataplane has not read it
	// in this session, or has yielded. A host without state from a previous host learns from it
	// which mode serves.
	Shown Role

	// SwapImpact describes the connections or flows that a swap would interrupt, and what to do
	// about it: while Active, a swap from this dataplane; in Standby, a swap to it. Empty if
	// none.
	SwapImpact string

	Histograms []Histogram // further metrics

	// Notes are observations about the node that an operator should know and that affect no
	// Service, one sentence each, for as long as they are true.
	Notes []string

	// Degraded describes what on the node keeps packets from Services while Active, one
	// sentence each, for as long as it is true: the dataplane has written all that it can, and
	// something else drops the packets.
	Degraded []string

	// Dropped are counters of packets to Services that were dropped or rejected, at most one
	// for each reason and IP family. Reasons that are not counted are missing. The host adds
	// the increments between the reports of a mode, across restarts. A counter that decreases
	// has restarted at zero.
	Dropped []Drops
}

// Drops is the number of packets of an IP family that were dropped or rejected for a reason.
type Drops struct {
	Reason  string // one of DropReasons
	Family  Family
	Packets uint64
}

// DropReasons are the reasons that a host knows. It ignores others.
var DropReasons = []string{DropSourceRange, DropLocalWithoutEndpoint, DropNoEndpoint, DropForeignPort}

// Values of Drops.Reason.
const (
	DropSourceRange          = "source_range"           // the caller is not in the frontend's Sources
	DropLocalWithoutEndpoint = "local_without_endpoint" // the policy is Local, and there is no endpoint on this node
	DropNoEndpoint           = "no_endpoint"            // there is no endpoint on any node
	DropForeignPort          = "foreign_port"           // no Service has this port of the address
)

// A Busy is the error of a call that needs the writer's lock of its mode while another process
// holds it (contract line 8). The call has changed nothing, and the host retries it.
type Busy struct {
	Mode    string
	PID     int    // of the process that holds the lock; zero if not visible, for example in another PID namespace
	Program string // name of that process's executable; empty if unknown
	Host    int    // PID of the process that started it; zero if it is a separate unit or container, or unknown
}

func (b *Busy) Error() string {
	text := b.Holder() + " holds the writer's lock of mode " + b.Mode
	if b.Host != 0 {
		text += fmt.Sprintf("; pid %d started it", b.Host)
	}
	return text
}

// Holder describes the process that holds the lock, for messages.
func (b *Busy) Holder() string {
	switch {
	case b.PID == 0:
		return "a process that cannot be seen from here"
	case b.Program == "":
		return fmt.Sprintf("pid %d", b.PID)
	}
	return fmt.Sprintf("pid %d (%s)", b.PID, b.Program)
}

// A Sample is one value of a metric.
type Sample struct {
	Name   string
	Help   string // what it counts, in one sentence; the first sample of a metric determines it
	Labels map[string]string
	Value  float64
}

// An AffinityCarrier can transfer client affinity to its successor, so that clients keep their
// endpoints across a swap.
type AffinityCarrier interface {
	// ExportAffinity calls the function once for each current entry, in any order, and stops at
	// the first error that the function returns.
	ExportAffinity(context.Context, func(AffinityEntry) error) error

	// ImportAffinity adds entries to the current ones. It is called before SetRole with Active,
	// so that the first packet of a client already finds its entry.
	ImportAffinity(context.Context, []AffinityEntry) error
}

// An AffinityEntry binds a client of a Service to an endpoint.
type AffinityEntry struct {
	Name     Name
	Client   netip.Addr
	Endpoint netip.AddrPort
	Left     time.Duration // until the entry expires
}
