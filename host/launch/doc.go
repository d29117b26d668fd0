// SPDX-License-Identifier: Apache-2.0

/*
Package launch runs one process of a plugin: it starts the process, or connects to one that something else runs,
configures it, sends a heartbeat each second, and ends it. Package plane decides when to start it again.

	Binary ─▶ go-plugin's Client ─▶ wire.Dial ─▶ Process ─▶ Watch ─▶ End
	checked,   handshake, TLS        our gRPC
	held open        │
	                 ▼ child: go-plugin's Runner

A plugin must not outlive its host. The host holds the other end of the plugin's stdin, and the plugin ends when that is
closed, for whatever reason the host ended. On Linux the kernel also kills the plugin (PR_SET_PDEATHSIG), which covers a
plugin that is stopped.

A process counts as hung if it answers no heartbeat for ten seconds (thirty if it serves only while its process runs),
if a call continues three seconds past its deadline, or if a call neither makes progress nor waits for anything. There is
no reconnect: a process whose connection is lost is ended.

Nothing here removes what a dataplane has written: rules in the kernel keep serving if their plugin crashes, hangs or
does not start. A process that something else runs (Plugin.Address) gets no signal. Start reading at Plugin.Start.
*/
package launch
