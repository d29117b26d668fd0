// SPDX-License-Identifier: Apache-2.0

/*
Package launch starts the process of a plugin and ends it.

	Binary ─▶ go-plugin's Client ─▶ wire.Dial ─▶ Plugin ─▶ Stop
	checked,   handshake, TLS        our gRPC
	held open        │
	                 ▼ child: go-plugin's Runner

A plugin must not outlive its host. The host holds the other end of the plugin's stdin, and the plugin ends when that is
closed, for whatever reason the host ended. On Linux the kernel also kills the plugin (PR_SET_PDEATHSIG), which covers a
plugin that is stopped. What a plugin wrote to the kernel stays and serves.

There is no reconnect: package supervise ends a process whose connection is lost. Start reading at Launch.
*/
package launch
