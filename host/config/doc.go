// SPDX-License-Identifier: Apache-2.0

/*
Package config reads the one file a user writes.

	defaults.yaml ─┐
	host.yaml ─────┤ strict: every field known, typed,     ┌─▶ Host, and of each
	POINTSMAN_* ───┼─▶ given once; all that is wrong is ───┤   value where it came from
	flags ─────────┘   told at once, with file and line    └─▶ or Problems

The later in this list wins. A field that it is not known is an error and not a
shrug: a misspelt one would silently leave the default in force.

A running host looks at its file again and again (Follow). What it can change
while it runs it changes; what needs a restart is listed as pending; and a file
that is gone, empty, unreadable or wrong changes nothing: the last good one stays
in force, and status says so.
*/
package config
