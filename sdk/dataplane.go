// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"time"
)

// A Dataplane makes a node's kernel, or a process on it, serve Services. The
// package comment has the contract, line by line. Calls never overlap, except
// that Inspect, Trace, Watch and Report may run beside another call; each honours its context
// within a second, and leaves no child process behind.
type Dataplane interface {
	// Configure begins a session. It only reads the node: can it run this
	// dataplane, and what of it? The Description returned is the one given to
	// Serve, narrowed to what works here. The next Update is a Full. Being
	// called again, also with the same Setup, is harmless to what is served.
	//
	// It returns a *Refusal when the node or the options make serving impossible.
	Configure(context.Context, Setup) (Description, error)

	// Sync makes the kernel serve the state that the update leads to. A nil
	// error is the acknowledgement of all but the Services in Result.Failed.
	// After an error nothing is taken for granted: the next update leads from
	// the last acknowledged revision. ErrResync asks for a Full; a *Busy says that
	// nothing was written, because another process holds the writer's lock.
	Sync(context.Context, Update) (Result, error)

	// SetRole changes the part this dataplane plays, from any role to any. It cannot
	// say that one Service failed: a Sync in Standby names those that Active could
	// not serve, as far as can be known, and an error means that the role was not taken.
	// Every role but Yielded needs the writer's lock, so that the error may be a *Busy.
	SetRole(context.Context, Role) error

	// Cleanup removes every trace of this dataplane from the node, and names
	// what is removed, in words an operator knows. It works without Configure, in a
	// process that has never served, and never touches what is not its own. While another
	// process holds the writer's lock it removes nothing, and the error is a *Busy.
	Cleanup(context.Context, Leftovers) ([]string, error)
}

// A Setup begins a session.
type Setup struct {
	// Options are the plugin's own options from the host's file, as JSON with
	// the case kept; none, or null, where the file has none. They have not been held to
	// Description.Options: what a dataplane does not know it answers with a *Refusal.
	Options []byte

	// StateDir is a directory of the plugin's own that outlives the process but
	// not a reboot. Configure makes nothing in it: for check by hand it is none.
	StateDir string

	// Gone returns how long the host that began the session has been disconnected; zero: it is connected.
	// Nil: that is not known. It returns at once, and may be called at any time.
	Gone func() time.Duration

	// Log is where to say what happens. It never blocks and never fails, with or
	// without a host.
	Log *slog.Logger
}

// NotSet begins each of Report.Notes by which a dataplane says that it could not set one of the
// kernel's parameters and serves without. The host makes an event of the node of it.
const NotSet = "cannot set a kernel parameter: "

// A Description is what a dataplane is, known without touching the node.
type Description struct {
	Name     string    // as in the binary's name: [a-z0-9-]+
	Version  string    // the plugin's own
	Features []Feature // what it serves beyond a ClusterIP over TCP
	Limits   []Limit   // what it does otherwise than the contract says
	Options  []byte    // JSON schema of Setup.Options, shown to the user who writes the file; nil: it has none
}

// A Result is what a Sync came to.
type Result struct {
	// Failed are the Services of this update that are not served as it says.
	// Each keeps what served it before; the host reports it and offers it again.
	Failed []Failure
}

// A Failure is one Service that could not be served, and why; Err is never nil. A
// *Refusal in Err means that trying again will not help.
type Failure struct {
	Name Name
	Err  error
}

// A Role is the part that a dataplane plays on the node; contract line 7 says
// what each means. The zero value is none.
type Role uint8

// The roles.
const (
	Standby  Role = iota + 1 // programmed, catches nothing new, keeps what is established
	Active                   // serves
	Draining                 // as Standby, and counts what is established
	Yielded                  // releases the writer's lock, leaves the kernel as it is

	// Absent is for Report.Shown only: nothing of the dataplane is on the node.
	Absent
)

var roles = []string{Standby: "standby", Active: "active", Draining: "draining", Yielded: "yielded", Absent: "absent"}

func (r Role) String() string { return word(roles, uint8(r), "role") }

// Known reports whether r is a role that SetRole can set in this version.
func (r Role) Known() bool { return r != Absent && known(roles, uint8(r)) }

// Leftovers say what Cleanup is to remove.
type Leftovers struct {
	KubeProxy bool // also what kube-proxy left in the mode this dataplane replaces
	DryRun    bool // only name it
}

// An Inspector can say what it serves now, read from the kernel and not from its
// memory. It calls the function once for each frontend, in any order, and stops
// with the first error that the function returns.
//
// In Standby it names what it would serve if it were Active now: a host compares that with what
// it sent, and swaps to the dataplane only if they are the same. Rules that catch nothing yet are
// read from the kernel as well; a dataplane that has nothing there in Standby, such as a relay,
// names what it holds ready. A Service that is in Result.Failed is not named, unless it is served
// as before.
type Inspector interface {
	Inspect(context.Context, func(Served) error) error
}

// A Served is one frontend as the kernel serves it. Endpoints are those that a
// caller who counts for the frontend's policy can be sent to, in order; empty
// means that callers are turned away.
type Served struct {
	Name      Name
	Frontend  Frontend
	Endpoints []netip.AddrPort
}

// A Tracer can walk the first packet of a connection through the rules that the kernel has now: those of iptables
// and nf_tables, also of other programs, in the kernel's order of hooks and priorities. What decides otherwise, such
// as IPVS or a process that relays connections, it names and does not follow. Trace may run beside another call, as
// Inspect may.
type Tracer interface {
	Trace(context.Context, Packet) (Traced, error)
}

// A Packet is the first one of a connection.
type Packet struct {
	Protocol Protocol
	From, To netip.AddrPort // From's port is zero where it is not known
	Origin   Origin         // OnNode: a process of the node sends it
	In       string         // else: the interface that it comes in on; empty: that by which replies to From would leave
}

// A Traced is a walk through rules.
type Traced struct {
	Ways        []Way    // each place where it ends; several where rules choose at random
	Notes       []string // what may decide besides the rules, such as a program of XDP, a sentence each
	Connections []string // from the caller to the destination that conntrack has; rules of nat are not asked for them again
}

// A Way is one on which a walk ends.
type Way struct {
	Verdict    Verdict        // Forward: no rule stops it
	To         netip.AddrPort // where it goes, after translation; Packet.To: it is not translated
	Masquerade bool           // what it is sent to sees the node, not the caller
	Then       string         // what decides next and is not followed, such as IPVS; empty: Verdict is final
	Steps      []string       // rules that matched and routes, in order, as an operator finds them; of the first ways only
}

// A Watcher can tell what rules in the kernel, also those of other programs, do with packets while it watches. Watch calls
// the function for packets with the given protocol, sender's address and destination. The zero Packet selects all packets that
// begin a connection or belong to none; of those only dropped and rejected ones are told. On a busy node Watch takes samples.
// It returns the first error of the function, and nil when its context ends. Its changes to the kernel go with the process,
// even if that is killed.
type Watcher interface {
	Watch(context.Context, Packet, func(WatchedPacket) error) error
}

// A WatchedPacket is a packet that has passed all rules, or that a rule dropped or rejected. Its Protocol is zero where it is
// no protocol of Services. Of established TCP connections only dropped and rejected packets are told.
type WatchedPacket struct {
	Packet
	Verdict Verdict
	At      string // the rule that dropped or rejected it, as an operator finds it; of Forward, the destination after translation
	Reason  string // one of DropReasons; empty: another one
}

// A Reporter can say how it is doing. Report is called each second, beside other
// calls, and must return at once.
type Reporter interface {
	Report() Report
}

// A Report is how a dataplane is doing.
type Report struct {
	Progress uint64   // grows while a call makes progress; zero: never reported. One that stands still for seconds hangs, and is killed
	Waiting  string   // what the present call waits for, such as another tool's lock; empty: nothing
	Flows    int      // while Draining: established connections of its own that are left
	Repaired uint64   // how often another program's change was undone (contract line 12)
	Repair   string   // what was undone last, and which program had done it if the kernel tells
	Lost     string   // what the last look found removed or changed by another program; empty: nothing
	Samples  []Sample // metrics, published by the host on its one scrape port

	// Shown is the role that the node itself shows, by what only this dataplane writes: Standby, Active,
	// Draining or Absent. Zero: the dataplane has not read it in this session, or has yielded. A host that
	// knows nothing of the host before learns from it which mode serves.
	Shown Role

	// SwapImpact says which connections or flows a swap would end, and what to do about
	// it: while Active, a swap from this dataplane; in Standby, a swap to it. Empty: none.
	SwapImpact string

	Histograms []Histogram // more of them

	// Notes are what was observed on the node that an operator should know and that costs
	// no Service, a sentence each, as long as it is so.
	Notes []string

	// Degraded says what on the node keeps packets from Services while Active, a sentence each, as long as
	// it is so: the dataplane has written all that it can, and something else drops them.
	Degraded []string

	// Dropped are the counters of packets to Services that were dropped or rejected, at most one for each reason and IP
	// family; what is not counted is missing. The host adds up by how much they grow between the reports of a mode, also
	// over restarts. A counter that is smaller than before began anew.
	Dropped []Drops
}

// Drops are how many packets of an IP family were dropped or rejected for a reason.
type Drops struct {
	Reason  string // one of DropReasons
	Family  Family
	Packets uint64
}

// DropReasons are those that a host knows. It ignores others.
var DropReasons = []string{DropSourceRange, DropLocalWithoutEndpoint, DropNoEndpoint, DropForeignPort}

// The reasons.
const (
	DropSourceRange          = "source_range"           // the caller is in none of the frontend's sources
	DropLocalWithoutEndpoint = "local_without_endpoint" // the policy is Local, and there is no endpoint on this node
	DropNoEndpoint           = "no_endpoint"            // there is no endpoint at all
	DropForeignPort          = "foreign_port"           // no Service has that port of the address
)

// A Busy is the error of a call that needs the writer's lock of its mode while another process
// holds it (contract line 8). The call has changed nothing, and the host tries it again.
type Busy struct {
	Mode    string
	PID     int    // of the process that holds the lock; zero: it cannot be seen from here, as in another PID namespace
	Program string // the name of that process's executable; empty: unknown
	Host    int    // the PID of the process that started it; zero: it is a unit or a container of its own, or unknown
}

func (b *Busy) Error() string {
	text := b.Holder() + " holds the writer's lock of mode " + b.Mode
	if b.Host != 0 {
		text += fmt.Sprintf("; pid %d started it", b.Host)
	}
	return text
}

// Holder returns the process that holds the lock, for people.
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
	Help   string // what it counts, as one sentence; a metric has that of its first sample
	Labels map[string]string
	Value  float64
}

// An AffinityCarrier can hand client affinity to its successor, so that after a swap
// clients keep their endpoints.
type AffinityCarrier interface {
	// ExportAffinity calls the function once for each entry that is in force, in any
	// order, and stops with the first error that the function returns.
	ExportAffinity(context.Context, func(AffinityEntry) error) error

	// ImportAffinity adds entries to those in force. It is called before the role
	// Active, so that the first packet of a client already finds its entry.
	ImportAffinity(context.Context, []AffinityEntry) error
}

// An AffinityEntry is one client of one Service that keeps its endpoint.
type AffinityEntry struct {
	Name     Name
	Client   netip.Addr
	Endpoint netip.AddrPort
	Left     time.Duration // until the entry expires
}
