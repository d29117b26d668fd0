// SPDX-License-Identifier: Apache-2.0

/*
Package watch is where Services come from. A source finds objects, reads them
strictly, and tells the tracker what differs; it decides nothing.

	folder ─look─▶ files ─Parse─▶ objects ─merge─▶ tracker.SetService, DeleteSlice, …
	   every second        │
	                       └▶ faults: file:line: reason

The files source serves one machine without a cluster. It reads the manifests one
would give to kubectl, and does what an API server would have done with them
before a proxy sees them: it fills in defaults and refuses what makes no sense.

It trusts no single look. What is new or changed counts at once. What is missing
goes only when a second look misses it too: an editor may be between two writes.
And a file that cannot be read, or holds an error, takes nothing away.
*/
package watch
