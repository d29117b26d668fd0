// SPDX-License-Identifier: Apache-2.0

/*
Package supervise runs one process of a plugin. Start starts the process, or connects to one that something else runs,
and configures it. Watch sends a heartbeat each second, and ends the process. Package plane decides when to restart it.

A process counts as hung if it answers no heartbeat for ten seconds (thirty if it serves only while its process runs),
if a call continues three seconds past its deadline, or if a call neither makes progress nor waits for anything.

Nothing here removes what a dataplane has written: rules in the kernel keep serving if their plugin crashes, hangs or
does not start. A process that something else runs (Plugin.Address) gets no signal.
*/
package supervise
