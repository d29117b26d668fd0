// SPDX-License-Identifier: Apache-2.0

/*
Package reach decides what a Kubernetes Service means on one node: by which
frontends it is reached, and which endpoints this node may use. It keeps nothing
and touches nothing; the same in gives the same out.

	Service        ──Read──▶ Service ──Frontends──▶ []PortFrontends
	EndpointSlices ──Read──▶ Slice   ──Choose─────▶ Lists{Cluster, Local, Serving}
	                                            ▲
	                                     Here, this node

The read records hold what matters and nothing else, so that two objects which
differ only in what we do not serve are equal as records, and reading one into a
record that was used before allocates nothing. API objects are never kept.
*/
package reach
