// SPDX-License-Identifier: Apache-2.0

/*
Package sdktest holds what a Service means, as tests that every dataplane is held
to, and what one needs to test a dataplane of one's own.

# Scenarios

A [Scenario] is a txtar file in testdata: words, a node, Services, and packets
with what becomes of them.

	A node port under the Local policy keeps to this node's endpoints.
	-- services --
	ns1/web:http tcp
	  cluster-ip 172.30.0.41:80
	  node-port  30080 local
	  endpoint   10.180.0.1:8080 here
	  endpoint   10.180.1.1:8080
	-- packets --
	10.180.0.9 > 172.30.0.41:80 = 10.180.0.1:8080 10.180.1.1:8080
	192.0.2.7  > node:30080     = 10.180.0.1:8080
	node       > node:30080     = 10.180.0.1:8080 10.180.1.1:8080 masq

The sections are:

	-- node --       facts that differ from the usual node's: name, addresses,
	                 node-ports RANGE…, pods RANGE… | bridge NAME | interface PREFIX |
	                 unknown, masquerade-all, mark-bit N, service-cidrs RANGE…
	-- services --   a block each. Frontends: cluster-ip, node-port, external-ip,
	                 load-balancer, then "local" for the Local policy, then "from
	                 RANGE…". Endpoints: "here" if on the node; one that is here is in
	                 both lists, another in Cluster alone, unless "cluster-only" or
	                 "local-only" is said. Further: serving ADDR, affinity TIME,
	                 health-port N, hint KEY=VALUE. Addresses of both families in one
	                 block make two Services.
	-- packets --    caller > address:port [udp|sctp] = outcome. A caller is an address,
	                 "node", ADDR@node (the node by another name), or ADDR@INTERFACE. An
	                 outcome is drop, reject, unserved (none of ours: it passes by), or
	                 the endpoints that may be chosen, with "masq" behind when they see
	                 the node; "(masq)" on one endpoint: it alone does, being the caller.
	-- manifests --  Kubernetes objects that come to exactly these Services.

The usual node is n1: 192.0.2.10 and 2001:db8::10, its pods in 10.180.0.0/24 and
fd00:10:180::/64, node ports on every address. Elsewhere are pods of other nodes
(10.180.1.0/24 and up), neighbours in 192.0.2.0/24, and clients in 198.18.0.0/15.

# The conformance suite

[Conform] holds a dataplane to the contract of package sdk, line by line; a check
is named for its line. A dataplane's own test is short: here is how to make me.

	func TestConforms(t *testing.T) {
		sdktest.Conform(t, sdktest.InProcess(description, New))
	}

[Check] does the same outside of a test, and returns a [Report]; the program
pointsman-conformance does so with a plugin's [Binary]. A [Subject] also says on
which [Testbed] packets are sent. [Loopback] needs no privileges; a dataplane that
serves only addresses which the node has gets it unasked. Where a dataplane declares
a limit, the suite expects what the limit says instead. A check that was not run says
why, and one that is needed disqualifies.
*/
package sdktest
