// SPDX-License-Identifier: Apache-2.0

package sdk

// A Feature is a part of the vocabulary that a dataplane may lack. The host withholds a Service
// from a dataplane that does not claim a Feature which the Service needs, and reports that.
// Without this, the dataplane would send packets to the wrong place.
type Feature string

// Values of Feature, as in Description.Features.
const (
	FeatureIPv4         Feature = "ipv4"
	FeatureIPv6         Feature = "ipv6"
	FeatureUDP          Feature = "udp"
	FeatureSCTP         Feature = "sctp"
	FeatureNodePort     Feature = "node-port"     // frontends with an unspecified address
	FeatureLocalPolicy  Feature = "local-policy"  // Policy Local
	FeatureSourceRanges Feature = "source-ranges" // Frontend.Sources
	FeatureAffinity     Feature = "affinity"      // Service.Affinity
)

// Features are all features of this version of the vocabulary.
var Features = []Feature{
	FeatureIPv4, FeatureIPv6, FeatureUDP, FeatureSCTP,
	FeatureNodePort, FeatureLocalPolicy, FeatureSourceRanges, FeatureAffinity,
}

// Needs returns the features that are required to serve s correctly.
func (s Service) Needs() []Feature {
	var needs []Feature
	add := func(f Feature, needed bool) {
		if needed {
			needs = append(needs, f)
		}
	}
	add(FeatureIPv4, s.Name.Family == IPv4)
	add(FeatureIPv6, s.Name.Family == IPv6)
	add(FeatureUDP, s.Name.Protocol == UDP)
	add(FeatureSCTP, s.Name.Protocol == SCTP)
	var nodePort, sources bool
	for _, f := range s.Frontends {
		nodePort = nodePort || f.Addr.Addr().IsUnspecified()
		sources = sources || len(f.Sources) > 0
	}
	add(FeatureNodePort, nodePort)
	add(FeatureLocalPolicy, s.Uses(Local))
	add(FeatureSourceRanges, sources)
	add(FeatureAffinity, s.Affinity > 0)
	return needs
}

// A Limit is a known difference of a dataplane from the contract. The list is closed, and the
// conformance suite has an expected result for each Limit.
type Limit string

// Values of Limit, as in Description.Limits.
const (
	// Callers that should be dropped are rejected instead. (A process without root cannot
	// prevent the kernel from accepting a connection.)
	LimitNoDrop Limit = "no-drop"

	// Endpoints see an address of the node, never the caller's.
	LimitNoClientAddress Limit = "no-client-address"

	// Client affinity is separate for each frontend.
	LimitAffinityPerFrontend Limit = "affinity-per-frontend"

	// Only frontends with an address that the node has are served, because nothing redirects
	// packets. Services with other frontends are in Result.Failed, in Standby too.
	LimitOwnAddressesOnly Limit = "own-addresses-only"

	// Node ports are served at single addresses of the node, not at a whole prefix in the
	// kernel's local routing table.
	LimitNodePortsAtAddresses Limit = "node-ports-at-addresses"

	// The node has the addresses of external IPs and load balancers, so it receives everything
	// that it sends to them, at every port.
	LimitTakesAddresses Limit = "takes-addresses"

	// Nothing stays in the kernel: serving ends with the process.
	LimitDiesWithProcess Limit = "dies-with-process"
)

// Limits are all limits of this version of the contract.
var Limits = []Limit{
	LimitNoDrop, LimitNoClientAddress, LimitAffinityPerFrontend, LimitOwnAddressesOnly, LimitNodePortsAtAddresses,
	LimitTakesAddresses, LimitDiesWithProcess,
}
