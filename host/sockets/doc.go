// SPDX-License-Identifier: Apache-2.0

/*
Package sockets finds processes of this node that listen where a Service is reached: on
a node port, or at an address of the node that a Service has as well. The dataplane
catches the packets before the process does, so that one of the two does not get what
is meant for it; and nothing else would say so.

	tracker: node ports, frontends at node addresses ─┐
	/proc/net/{tcp,tcp6,udp,udp6}: what is listened on ┴▶ Collide ─▶ whose? ─▶ event, warning

It looks when the tracker's ports have changed, and slowly in between. Sockets of the
host and of its plugins are no collisions.
*/
package sockets
