// SPDX-License-Identifier: Apache-2.0

/*
Package supervise runs one process of a plugin: Start starts it, or connects to one that something else runs, and
configures it; Watch asks it each second how it does, and ends it. When a process is started again is for package plane
to decide.

A process hangs when it answers no heartbeat for ten seconds, or thirty if it serves only while it runs; when a call
runs on three seconds past its deadline; or when a call reports no progress and waits for nothing.

Nothing here removes what a dataplane has written. A plugin that crashes, hangs or does not start is no reason to remove
rules that serve. A process that something else runs (Plugin.Address) gets no signal.
*/
package supervise
