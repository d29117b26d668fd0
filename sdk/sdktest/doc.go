// SPDX-License-Identifier: Apache-2.0

/*
Package sdktest defines the meaning of Services by tests that every dataplane must
pass, and has the tools to test your own dataplane. It must not depend on how a
dataplane works: it uses only the interfaces of package sdk, and packets. Start
reading at [Conform] and [Scenario].

# Scenarios

A [Scenario] is a txtar file in testdata: a description, a node, Services, and packets
with their outcomes.

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

	-- node --       facts that differ from the usual node's: addresses,
	                 node-ports RANGE…, pods RANGE… | bridge NAME | interface PREFIX |
	                 unknown, masquerade-all, mark-bit N, service-cidrs RANGE…
	-- services --   a block each. Frontends: cluster-ip, node-port, external-ip,
	                 load-balancer, then "local" for the Local policy, then "from
	                 RANGE…". Endpoints: "here" if on the node; an endpoint with "here"
	                 is in both lists, any other in Cluster only, unless "cluster-only"
	                 or "local-only" follows. Also: serving ADDR, affinity TIME,
	                 health-port N. Addresses of both families in one block make two
	                 Services.
	-- packets --    caller > address:port [udp|sctp] = outcome. A caller is an address,
	                 "node", ADDR@node (the node by another name), or ADDR@INTERFACE. An
	                 outcome is drop, reject, unserved (for no Service: not touched), or
	                 the endpoints that may be chosen, followed by "masq" if they see the
	                 node's address; "(masq)" after one endpoint means that only this one
	                 does, because it is the caller.
	-- manifests --  Kubernetes objects from which exactly these Services follow.

The usual node is n1: 192.0.2.10 and 2001:db8::10, its pods in 10.180.0.0/24 and
fd00:10:180::/64, node ports on every address. Elsewhere are pods of other nodes
(10.180.1.0/24 and up), neighbours in 192.0.2.0/24, and clients in 198.18.0.0/15.

# The conformance suite

[Conform] tests a dataplane against the contract of package sdk, line by line; the
names of checks begin with their line. A dataplane's own test only says how to create
the dataplane:

	func TestConforms(t *testing.T) {
		sdktest.Conform(t, sdktest.InProcess(description, New))
	}

[Check] does the same outside of a test and returns a [Report]; the program
pointsman-conformance uses it with a plugin's [Binary]. A [Subject] also selects the
[Testbed] to which packets are sent. [Loopback] needs no privileges, and is the default
for a dataplane that serves only addresses of the node. If a dataplane declares a limit,
the suite expects the result that the limit defines. A check that was not run reports
the reason, and a dataplane conforms only if no needed check is missing.
*/
package sdktest
