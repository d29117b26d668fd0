// SPDX-License-Identifier: Apache-2.0

/*
Package watch follows the sources of Services and passes changes to the tracker; it decides nothing.

	folder ─poll─▶ files ─parse, check─▶ objects ─merge─┐
	                 │                                  ├▶ tracker.SetService, DeleteSlice, …
	                 └▶ faults                          │
	API server ─list, watch─▶ store ────────────────────┘
	   └▶ link: unreachable, forbidden, back

Neither source marks the tracker as synced before it has seen all objects, and neither removes anything because its
source does not answer.

The Kubernetes source follows Services, EndpointSlices, ServiceCIDRs and this node's Node by reflectors of client-go, but
keeps no cache behind them (see store). Events writes to the API server what the operator should know.

The files source serves one machine without a cluster. It reads the manifests that one would give to kubectl, and refuses
most objects that an API server would refuse. Package reach omits and reports other values that cannot be used.

Only this package talks to an API server. Start reading at Kubernetes (kube.go) or FileSource.poll (files.go).
*/
package watch
