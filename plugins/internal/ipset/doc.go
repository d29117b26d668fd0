// SPDX-License-Identifier: Apache-2.0

// Package ipset looks up and changes single members of the kernel's ipsets by netlink. It exists because the
// messages of the netlink library give every port a protocol, which bitmap:port sets refuse, and have no marks.
// Operations on whole sets use the program ipset, so the package never creates or removes a set. Start with Has and
// Change.
package ipset
