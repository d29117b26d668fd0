// SPDX-License-Identifier: Apache-2.0

/*
Package watch is where Services come from. A source finds objects, reads them
strictly, and tells the tracker what differs; it decides nothing.

	folder ─look─▶ files ─Parse─▶ objects ─merge─┐
	   when told, or       │                     ├▶ tracker.SetService, DeleteSlice, …
	   each second         └▶ faults: file:line  │
	API server ─list, watch─▶ trim ─▶ heard ─────┘
	   │
	   └▶ link: away, forbidden, back

Neither begins to count before it has seen everything there is, and neither takes
anything away because it sees nothing any more.

The Kubernetes source follows Services, EndpointSlices and this node's Node. It
uses client-go's reflectors, which list, watch, and list again when a watch is too
old or the server was away; but it keeps no cache behind them (see heard). Events
goes the other way: it writes to the API server what the operator should know.

The files source serves one machine without a cluster. It reads the manifests one
would give to kubectl, and does what an API server would have done with them
before a proxy sees them: it fills in defaults and refuses what makes no sense.

The files source trusts no single look, as a file may be in the middle of being
written. What is new or changed counts when two looks found the same, an interval
apart; where the kernel tells of changes (inotify, on the file systems of this
machine), as soon as the file has stayed as it is for a moment after its writer closed
it, and at once when it was moved to its name as a whole. What is missing goes when it
was missed for an interval. And a file that cannot be read, or holds an error, takes
nothing away.

A read that does not come back, as on a network file system whose server is gone, is
left alone: the file keeps what it said, and the others are followed.
*/
package watch
