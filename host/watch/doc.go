// SPDX-License-Identifier: Apache-2.0

/*
Package watch is where Services come from. A source finds objects, reads them
strictly, and tells the tracker what differs; it decides nothing.

	folder ─look─▶ files ─Parse─▶ objects ─merge─┐
	   every second        │                     ├▶ tracker.SetService, DeleteSlice, …
	                       └▶ faults: file:line  │
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

The files source trusts no single look. What is new or changed counts at once. What
is missing goes only when a second look misses it too: an editor may be between two
writes. And a file that cannot be read, or holds an error, takes nothing away.
*/
package watch
