// SPDX-License-Identifier: Apache-2.0

/*
Package launch starts the processes of plugins, finds those that a former host left
running, and ends them. It is the part of a plugin's connection that only a host needs;
what both ends need, and what a plugin's author imports, is package wire.

	Command ─▶ Binary ─▶ child ─▶ handshake ─▶ wire.Dial ─▶ Plugin ─▶ Stop, Abort, Exit
	          checked,   limited   go-plugin's              │
	          held open  in time   one line                 ▼ Handle, on disk
	                                            Attach, End ◀─ the next host

A process is known by more than its pid before it gets a signal: by a pidfd, the time of
its start, and the [Mark] in its environment. One that cannot be shown to be the plugin
that was launched is left alone ([ErrNotPlugin]).
*/
package launch
