// SPDX-License-Identifier: Apache-2.0

/*
Package doctor looks at what a node has that Services depend on and that no dataplane decides:
kernel parameters, the table of connections, ports, the clock, other programs that serve
Services, and the folders in which the host notes what the next one needs. Each check is a
function of what the kernel shows in /proc, of the node's interfaces, or of a file system. It
needs no privilege, changes nothing, and asks no host.
*/
package doctor
