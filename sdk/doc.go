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

The Kubernetes half stays in the host: types of Service, traffic policies, topology
hints, readiness, termination. The dataplane receives a list of frontends and lists of
endpoints that are ready to use.

# The vocabulary

A [Service] is one port of one Kubernetes Service in one IP family. It has frontends,
the addresses that callers send to, and two lists of endpoints, one for each policy
that a frontend can have. [Service.Route] returns the verdict for a caller's packet; a
dataplane implements the same in its own way. A [Node] holds the facts about the node,
an [Update] transports changes of Services and of the Node, and a [State] is the sum
of updates.

# The shortest dataplane

[Whole] turns one function into a Dataplane:

	func main() {
		wire.Serve(description, sdk.Whole(description, func(ctx context.Context, s sdk.State) error {
			for name, svc := range s.Services {
				fmt.Println(name, svc.Frontends, svc.Cluster)
			}
			return nil
		}))
	}

A dataplane whose work should be proportional to each change keeps a State of its own
and calls [State.Apply] and [State.Confirm] in Sync.

# The contract

Package sdktest checks each line. Every dataplane must pass it, except for the [Limit]
values that it declares; each Limit has an expected result of its own.

0. Session. A session begins with Configure, which every new host and every new
process needs; a second call with the same Setup is harmless. The first Update of a
session is Full, and any other gets [ErrResync]. Revisions have no meaning across
sessions. Serve refuses calls of an older session: that fences off a host that was
believed dead.

1. Verdict, in this order. A packet from a source that is not allowed is dropped, even
from a pod or the node itself. If Cluster is empty, the caller is rejected. If the list
for this caller is empty, the packet is dropped.

2. Whose list, whose address. A ClusterIP uses the list of its policy, and is
masqueraded if MasqueradeAll is set, or if local pods are known and the caller is not
one of them. Other kinds with the Cluster policy use Cluster and are always
masqueraded. With the Local policy, a local pod gets Cluster without masquerading, the
node gets Cluster with masquerading, and any other caller gets Local with its source
address kept. An endpoint that calls itself is masqueraded.

3. Idempotent. A Full removes every object of ours that it does not name. A gap in
revisions gets ErrResync. After any other error the state is unknown: the next update
starts at the last acknowledged revision. A Full that is cut off before its end changes
nothing.

4. One bad Service never blocks the others. [Result].Failed names it with the reason,
and what served it before keeps serving it. The host reports the failure and sends the
Service again until it succeeds. A [*Refusal] means that this node cannot serve it, and
that a retry will not help. This applies to size, too: a Service with more endpoints
than one Sync can write in about two seconds is refused.

5. Cost follows the change. An update of k Services costs O(k and their endpoints): in
steady state the dataplane neither lists the kernel's objects nor renders all Services.
Exceptions are the dump of UDP flows after a change of UDP Services, an update with a
Node, and the costs of legacy iptables in the kernel.

6. Fail-static. Nothing is flushed at start, exit, disconnect or crash. A restarted
dataplane adopts what it finds and rewrites only differences. Only Cleanup removes, and
only our objects; foreign objects stay byte for byte. A rule that refers to one of our
objects is foreign, unless it is in a written list of the dataplane's own jumps and of
those that it replaces. An object to which a foreign rule refers is emptied and stays,
and Cleanup says so. An object that several dataplanes and other software share, such
as the chain KUBE-MARK-MASQ, has holders in the ledger (package sdk/ledger): it exists
while any of them serves, it shows no role, and the last holder removes it, unless it
existed before or foreign rules refer to it.

7. Roles, from any to any. [Standby] is programmed and receives no packets. [Active]
serves. [Draining] receives no new connections, and reports in [Report].Flows how many
of its own established connections are left. It takes updates as Standby does and
removes endpoints that were deleted, because it may become Active again at any time.
Established connections are kept in every role until they end: a change of role removes
nothing that a connection needs. [Yielded] releases the writer's lock, leaves the kernel
as it is, and finishes only what is in its process: a relay continues to accept the
connections that the rules still send to it. At start, the role is the one that the
kernel shows; a dataplane that keeps nothing in the kernel starts in Standby.
[Report].Shown reports it; after a role was set with an Update, it is that role. A role
that is set before the first Update of a process must not remove anything that serves,
because the desired state is not known yet. Two dataplanes may be Active for a moment:
the one that became Active last takes precedence. In Standby, [Inspector] names what
would be served in the role Active: a host swaps only to a dataplane that names what it
was sent. A swap fails no new connection.

8. One writer for each mode and network namespace. The writer holds a file lock, which
every tool that it runs inherits. Sync, Cleanup and each role but [Yielded] need the
lock: while another process holds it they change nothing and return a [*Busy] that
names that process. Configure, Inspect, Trace, Watch and Report need no lock. The host retries
every 100 ms for 3 s, and then each second. The lock is kept until the dataplane yields,
ends, or has been without a host for a minute; a Yielded dataplane answers Sync with
*Busy. A dataplane that keeps nothing outside its process needs no lock. Updates that it
accepts while Yielded take effect when it gets another role.

9. UDP. Only the Active dataplane deletes conntrack entries of flows, and only flows
whose original destination is a frontend of a Service and whose reply comes from none
of its serving addresses (Cluster, Local or Serving). If the Service has none, or this
Update removes the frontend, these are the flows that were translated; the next datagram
is then refused, or no longer concerns us. No other flow is touched.

10. A frontend has one owner: per family, one address, port and protocol belongs to one
Service. The host decides, and when the owner gives it up, the same Update sets the next
owner. Order within an Update has no meaning: a frontend that changes its Name is
switched, never removed after it was added.

11. Calls never overlap, except that Inspect, Trace, Watch and Report may run beside another
call; Serve ensures this. A call honours its context within a second, and its child
processes are killed and reaped: nothing of a call continues after it. A daemon that a
dataplane needs runs as a unit or container of its own, and the dataplane writes its
configuration. A call that does not return counts as hung, and the process is killed;
waiting for another tool's lock is a reported state ([Report].Waiting) and not a hang.

12. Drift. If another program flushes or deletes a chain, set, address or all virtual
servers, the dataplane detects and repairs that within 5 s; a slow, spread-out audit
finds smaller changes. While the host is gone ([Setup].Gone), a dataplane repairs
nothing: at the first change by another program, and after a minute, it yields until the
next session. [Report].Lost says what the last check found missing or changed, until a
check finds everything.

13. Evolution. A Service with an enum value that the dataplane does not know goes to
Failed, and never fails the update. Serve does this, and leaves the Service out. A field
whose absence would change where a packet goes has a [Feature] name, and the host sends
such a Service only to dataplanes that claim the Feature. Dataplane gains no method
within a major version.
*/
package sdk
