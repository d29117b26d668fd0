// SPDX-License-Identifier: Apache-2.0

// Package ledger writes down what dataplanes take from a node, so that it can be
// given back, and which process may write.
//
// Some of what a dataplane changes belongs to no dataplane: a kernel parameter had a value
// before, another dataplane may want it too, and an operator may change it later.
// The ledger is one file for each network namespace, shared by all dataplanes
// there. It has the value before any of them, and its holders now:
//
//	Take(iptables, route_localnet, 1)   notes 0, writes 1
//	Take(ipvs,     route_localnet, 1)   notes a second holder
//	Release(iptables)                   the other still holds it: stays 1
//	Release(ipvs)                       the last one: 0 again, if it is still 1
//
// A value that another program has changed since is left alone. The note is on disk
// before the value is written, so a crash between the two loses nothing.
//
// Lock is the other half: one writer for each mode in a network namespace
// (contract line 8 in package sdk). The lock is a file lock, which the kernel
// frees when the last process that has the file open is gone; handing the file to
// the tools that a plugin runs keeps a successor out until they are done too.
//
// Open also removes what is left of network namespaces that are gone: that nothing was
// written for an hour, whose locks nothing holds, and that no process, open file or mount
// has. Where not every process can be looked at, as in a container, or without the right
// to enter namespaces, nothing is removed; a reboot clears the directory.
package ledger
