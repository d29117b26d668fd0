// SPDX-License-Identifier: Apache-2.0

/*
Package watch is where Services come from. A source finds objects, reads them
strictly, and passes what differs to the tracker; it decides nothing.

	folder ─look─▶ files ─parse─▶ objects ─merge─┐
	   on an event, or     │                     ├▶ tracker.SetService, DeleteSlice, …
	   each second         └▶ faults: file:line  │
	API server ─list, watch─▶ trim ─▶ store ─────┘
	   │
	   └▶ link: away, forbidden, back

Neither marks the tracker as synced before it has seen everything there is, and neither
removes anything because its source does not answer any more.

The Kubernetes source follows Services, EndpointSlices and this node's Node. It
uses client-go's reflectors, which list, watch, and list again when a watch is too
old or the server was away; but it keeps no cache behind them (see store). Events
goes the other way: it writes to the API server what the operator should know.

The files source serves one machine without a cluster. It reads the manifests one
would give to kubectl, and does what an API server would have done with them
before a proxy sees them: it fills in defaults and refuses what makes no sense.

The files source trusts no single look, as a file may be in the middle of being
written. What is new or changed counts when two looks found the same, an interval
apart; where the kernel reports changes (inotify, on the file systems of this
machine), as soon as the file has stayed as it is for 50 ms after its writer closed
it, unless it is empty, and at once when it was renamed into place. What is missing is removed when it
was missed for an interval. A file that cannot be read, or holds an error, removes
nothing.

Files are read in turn. Where the file system does not answer, as that of a network without
its server, no look ends: what was served stays, and a fault says for how long.
*/
package watch
