// SPDX-License-Identifier: Apache-2.0

/*
Package sdk is the vocabulary that Pointsman and its dataplanes share, and the
contract between them. It imports only the standard library, so a dataplane
brings nothing else in.

# Why there is a contract

A service proxy has two halves that fail in different ways. One half talks to the
Kubernetes API and decides which endpoints this node may use; it needs
credentials and much memory. The other writes rules into a kernel; it needs
NET_ADMIN and must be predictable. Pointsman runs them as two processes.
The first is the host. The second is a dataplane, behind the four methods of
[Dataplane]:

	          Configure, Sync, SetRole, Cleanup
	host  ───────────────────────────────────────▶  dataplane  ──▶  kernel
	          ◀── acknowledgement, Failed ───

Everything Kubernetes-ish stays on the left: types of Service, traffic policies,
topology hints, readiness, termination. What crosses is a list of frontends and
lists of endpoints, ready to use.

# The vocabulary

A [Service] is one port of one Kubernetes Service in one IP family. It has
frontends, the addresses that callers send to, and two lists of endpoints, for
the two policies a frontend can have. [Service.Route] says what becomes of one
caller's packet; a dataplane does the same in its own way. A [Node] holds what
must be known of the node, an [Update] brings changes of both, and a [State] puts
updates together.

# The shortest dataplane

[Whole] makes a Dataplane of one function:

	func main() {
		wire.Serve(description, sdk.Whole(description, func(ctx context.Context, s sdk.State) error {
			for name, svc := range s.Services {
				fmt.Println(name, svc.Frontends, svc.Cluster)
			}
			return nil
		}))
	}

One that works in proportion to each change keeps a State of its own and calls
[State.Apply] and [State.Confirm] in Sync.

# The contract

Each line is checked by package sdktest, which every dataplane passes, save for
the [Limit] values that it declares; each of those has an expected result of its
own.

0. Session. A session begins with Configure, by every new host and every new
process; the same Setup twice is harmless. Its first Update is Full, and anything
else gets [ErrResync]. Revisions mean nothing across sessions. Serve refuses the
calls of an older session: that is the fence against a host that was thought dead.

1. Verdict, in this order. A source that is not allowed is dropped, also a pod or
the node itself. If Cluster is empty the caller is rejected. If this caller's list
is empty the packet is dropped.

2. Whose list, whose address. A ClusterIP uses its policy's list, and is
masqueraded if MasqueradeAll, or if local pods are known and the caller is none.
The other kinds under the Cluster policy use Cluster and are always masqueraded.
Under the Local policy a local pod gets Cluster, not masqueraded; the node gets
Cluster, masqueraded; any other caller gets Local with the source kept. An endpoint
that calls itself is masqueraded.

3. Idempotent. A Full removes whatever of ours it does not name. A gap is
answered with ErrResync. After any other error nothing is taken for granted: the
next update starts at the last acknowledged revision. A Full cut off before its
end changed nothing.

4. One bad Service never blocks the others. [Result].Failed names it and why, and
it keeps what served it before. The host reports it and offers it again until it
goes in. A [*Refusal] means that this node cannot, and trying again will not help.
That goes for size, too: a Service with more endpoints than one Sync writes in about two
seconds is refused.

5. Cost follows the change. An update of k Services costs O(k and their
endpoints): no listing of the kernel and no rendering of everything in steady
state. Excepted are the dump of UDP flows after a UDP change, an update that
carries Node, and what legacy iptables itself costs in the kernel.

6. Fail-static. Nothing is flushed at start, exit, disconnect or crash. A
restarted dataplane adopts what it finds and rewrites only what differs. Only
Cleanup removes, only what is ours; foreign objects stay byte for byte. A rule that
leads to an object of ours is foreign unless it stands in a written list of the
dataplane's own jumps and of those that it replaces; what a foreign rule leads to is
emptied and stays, and Cleanup says so. What several dataplanes and other software
share, such as the chain KUBE-MARK-MASQ, is one object with holders in the ledger
(package sdk/ledger): it is there while any of them serves, it shows no role, and the last
holder removes it, unless it was there before or foreign rules lead to it.

7. Roles, from any to any. [Standby] is programmed and catches no packet. [Active]
serves. [Draining] catches nothing new, and reports by [Report].Flows how many established
connections of its own are left. It takes updates as Standby does and removes endpoints
that are gone, for it may be made Active again at once. What is established is kept in
every role until it ends: a change of role removes nothing that a connection needs.
[Yielded] releases the writer's lock, leaves the kernel as it is, and finishes only
what lives in its process: a relay goes on accepting what the rules still lead to it. At start the role is what the kernel shows; a dataplane that keeps
nothing in the kernel starts in Standby. [Report].Shown says what it is; after a role was set with an Update, it is that role. A role that comes before the first Update
of a process removes nothing that serves: it is not known yet what is desired. Two
dataplanes may be Active for a moment: the one made Active last takes precedence.
In Standby [Inspector] names what would be served if the role were Active: a host swaps
only to a dataplane that names what it was sent. A swap fails no new connection.

8. One writer for each mode and network namespace, by a file lock that every tool
the dataplane runs inherits. Sync, Cleanup and each role but [Yielded] need the lock: while
another process holds it they change nothing, and their error is a [*Busy] that names that
process. Configure, Inspect, Trace, Watch and Report need no lock. The host tries again: every
100 ms for 3 s, and then each second. A dataplane that has the lock keeps it until it
yields, ends, or has been without a host for a minute; a Yielded one answers Sync with a *Busy.
A dataplane that keeps nothing outside its process needs no lock. What such a one takes while it is
Yielded it serves once it has another role.

9. UDP. Only the Active dataplane forgets flows, and only those whose original
destination is a frontend of a Service and whose reply comes from none of its serving
addresses (Cluster, Local or Serving). Where the Service has none, or the frontend is
gone with this Update, these are the flows that were translated; the next datagram is
then refused, or none of ours. No other flow is touched.

10. A frontend has one owner: per family one address, port and protocol belongs to
one Service. The host decides, and when the owner gives it up the next one is Set in
the same Update. Order inside an Update means nothing: a frontend that changes
Name is switched, never removed after it was added.

11. Calls never overlap, though Inspect, Trace, Watch and Report may run beside one; Serve makes
sure of it. The context is honoured within a second and child processes are killed and
reaped: nothing of a call goes on after it. A daemon by which a dataplane serves runs as a
unit or container of its own, and the dataplane writes its configuration. What does not
return is hung, and is killed; waiting for another tool's lock is a reported state
([Report].Waiting), not a hang.

12. Drift. A flush or deletion by another program of a chain, set, address or all
virtual servers is noticed within 5 s and repaired; anything subtler by a slow,
spread-out audit. While the host is gone ([Setup].Gone), a dataplane repairs nothing: with the first
change of another program, and after a minute, it yields until the next session. [Report].Lost says what the last look found, until a look finds everything.

13. Evolution. An enum value that a dataplane does not know puts that Service in
Failed, never the update. Serve does this, and leaves the Service out. A field whose absence would change where a packet goes
has a [Feature] name, and the host keeps such a Service from a dataplane that does
not claim it. Dataplane gains no method within a major version.
*/
package sdk
