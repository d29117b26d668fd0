// SPDX-License-Identifier: Apache-2.0

/*
Package launch starts the process of a plugin and ends it.

	Binary ─▶ go-plugin's Client ─▶ wire.Dial ─▶ Plugin ─▶ Stop
	checked,   handshake, TLS        our gRPC
	held open        │
	                 ▼ child: go-plugin's Runner

A plugin never outlives its host. Its stdin is its lifeline: the host holds the other end, and the plugin ends when
it is closed, however the host ended. On Linux the kernel kills it besides (PR_SET_PDEATHSIG), for a plugin that is
stopped. What a plugin wrote to the kernel stays and serves.

The connection is made once. Package supervise ends a process whose connection is lost.
*/
package launch
