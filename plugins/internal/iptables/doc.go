// SPDX-License-Identifier: Apache-2.0

// Package iptables has rules as values, for every dataplane that writes some: how
// they are worded, handed to the kernel as one script, and read back.
//
//	Words("-d", addr, "-j DROP") ─▶ Rule ─▶ Script ─▶ Tool.Restore ─▶ kernel
//	                                 ▲                                  │
//	                                 └────── Read ◀──── Tool.Save ◀─────┘
//
// A Rule is text in iptables' own words, exactly as iptables-save prints it. So a
// rule that we wrote and a rule that the kernel has are equal when their texts
// are, and people that can read iptables-save can read the code that makes it.
//
// What comes from outside (a name in a comment) enters a rule only as Text, which
// is quoted; a Script refuses a rule with a line break whatever it came from.
package iptables
