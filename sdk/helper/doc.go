// SPDX-License-Identifier: Apache-2.0

/*
Package helper starts the long-lived processes of a dataplane, and finds them again.

A dataplane that serves by a daemon, such as a load balancer in user space, must not take
that daemon with it when its own process crashes: contract line 6 in package sdk wants
what is served to go on, and the restarted process to adopt it. But what a plugin's
process leaves behind is ended by the host, because it may be anything. So such a process is
declared:

	Start ─▶ record ─▶ process ─▶ record with its pid     the plugin crashes
	         NAME.json, before there is a process                │
	                                                              ▼
	Find  ◀─ record: same pid, same start time ◀── the plugin is started again

A record is written before the process is there, so that there is no moment at which it
runs undeclared. It is held to the pid and to the time at which the process started: one
that got the pid later is never taken for it, and never gets a signal.

The records are in a folder below Setup.StateDir, which [Dir] names. There the host reads
them: it leaves those processes alone, names them in its status and counts their memory.
What a plugin starts in any other way is ended by the host when the plugin's process has
ended.

A helper gets a session of its own, /dev/null to read, and a file beside the record to
write to. It has to stay in the foreground: a daemon that forks and lets its first process
end has ended, by its record.

Helpers are processes of Linux. On other systems Start and Find say that they cannot.
*/
package helper
