// SPDX-License-Identifier: Apache-2.0

// Package netns sends real packets to a dataplane that serves a real kernel, and
// says what became of them. Everything happens in network namespaces that the test
// makes, so that no test can touch the machine's own. It needs root, and Linux;
// elsewhere the package is empty.
//
// The process that tests is the node: Main, which TestMain calls, gives it a namespace
// to be one in. New builds the world around it, a namespace for each address that a
// scenario knows:
//
//	            ┌ 10.180.0.9   pods of the node ┐
//	 outside ─ node                             ├ each behind a veth pair, with a
//	(nobody)    ├ 10.180.1.1   pods elsewhere   │ route to it, and a default route
//	            ├ 192.0.2.7    neighbours       │ through the node
//	            └ 198.18.0.7   clients          ┘
//
// Every packet passes through the node, so an endpoint that sends an answer elsewhere would be
// found out. The node's own default route leads outside, where a router has no routes
// and says so: that tells a packet which no rule took from one that was dropped or
// rejected.
package netns
