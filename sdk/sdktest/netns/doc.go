// SPDX-License-Identifier: Apache-2.0

// Package netns sends packets to a dataplane that writes to the kernel, and returns
// their outcomes. It uses only network namespaces that the test creates, and must not
// affect the machine's own. It needs root and Linux; on other systems the package is
// empty. Start reading at Main and New.
//
// The test process is the node: Main, called by TestMain, runs it in a new namespace.
// New creates the hosts around it, with a namespace for each address in a scenario:
//
//	            ┌ 10.180.0.9   pods of the node ┐
//	 outside ─ node                             ├ each behind a veth pair, with a
//	(nobody)    ├ 10.180.1.1   pods elsewhere   │ route to it, and a default route
//	            ├ 192.0.2.7    neighbours       │ through the node
//	            └ 198.18.0.7   clients          ┘
//
// Every packet passes through the node, so the test detects replies that an endpoint
// sends elsewhere. The node's default route leads to outside, whose router has no
// routes and reports that by an ICMP error. So a packet that no rule handled can be
// distinguished from a packet that was dropped or rejected.
package netns
