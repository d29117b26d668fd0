// SPDX-License-Identifier: Apache-2.0

package sdk

// A Feature is a part of the vocabulary that a dataplane may lack. A Service
// that needs one it does not claim is kept from it, and the host says so:
// half-understood, it would send packets where they do not belong.
type Feature string

// The features, as Description.Features names them.
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

// Features are all that this version of the vocabulary knows.
var Features = []Feature{
	FeatureIPv4, FeatureIPv6, FeatureUDP, FeatureSCTP,
	FeatureNodePort, FeatureLocalPolicy, FeatureSourceRanges, FeatureAffinity,
}

// Needs returns the features without which s would not be served as it is meant.
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

// A Limit is a way in which a dataplane knowingly differs from the contract. The
// list is closed, and each has an expected result of its own in the conformance
// suite, so that it is a difference and not an excuse.
type Limit string

// The limits, as Description.Limits names them.
const (
	// What should be dropped is refused: the caller learns at once. (A process
	// without root cannot keep the kernel from answering a connection.)
	LimitNoDrop Limit = "no-drop"

	// An endpoint sees an address of the node, never the caller's.
	LimitNoClientAddress Limit = "no-client-address"

	// A client sticks to an endpoint on each frontend separately.
	LimitAffinityPerFrontend Limit = "affinity-per-frontend"

	// Only frontends whose address the node already has are served, because
	// nothing redirects packets; the others are in Result.Failed, in Standby too.
	LimitOwnAddressesOnly Limit = "own-addresses-only"

	// Node ports answer at single addresses of the node, not at a whole prefix that the kernel's
	// local table has.
	LimitNodePortsAtAddresses Limit = "node-ports-at-addresses"

	// The node takes whatever it sends to the address of an external IP or a load balancer, at every port: it has
	// the address.
	LimitTakesAddresses Limit = "takes-addresses"

	// Nothing stays in the kernel: when the process ends, so does the serving.
	LimitDiesWithProcess Limit = "dies-with-process"
)

// Limits are all that this version of the contract knows.
var Limits = []Limit{
	LimitNoDrop, LimitNoClientAddress, LimitAffinityPerFrontend, LimitOwnAddressesOnly, LimitNodePortsAtAddresses,
	LimitTakesAddresses, LimitDiesWithProcess,
}
