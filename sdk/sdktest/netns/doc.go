// SPDX-License-Identifier: Apache-2.0

// Package netns sends real packets to a dataplane that serves a real kernel, and
// reports their outcomes. Everything happens in network namespaces that the test
// creates, so no test can affect the machine's own. It needs root and Linux; on other
// systems the package is empty.
//
// The test process is the node: Main, called by TestMain, gives it a namespace of its
// own. New builds the hosts around it, with a namespace for each address in a
// scenario:
//
//	            ┌ 10.180.0.9   pods of the node ┐
//	 outside ─ node                             ├ each behind a veth pair, with a
//	(nobody)    ├ 10.180.1.1   pods elsewhere   │ route to it, and a default route
//	            ├ 192.0.2.7    neighbours       │ through the node
//	            └ 198.18.0.7   clients          ┘
//
// Every packet passes through the node, so the test detects replies that an endpoint
// sends elsewhere. The node's default route leads to outside, whose router has no
// routes and reports that with an ICMP error. So a packet that no rule took can be
// distinguished from one that was dropped or rejected.
package netns
