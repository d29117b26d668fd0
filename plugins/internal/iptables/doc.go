// SPDX-License-Identifier: Apache-2.0

// Package iptables represents iptables rules as values, for every dataplane that writes rules. It composes
// them, writes them to the kernel as one script, and reads them back.
//
//	Words("-d", addr, "-j DROP") ─▶ Rule ─▶ Script ─▶ Tool.Restore ─▶ kernel
//	                                 ▲                                  │
//	                                 └────────── Tool.Save ◀────────────┘
//
// A Rule is text exactly as iptables-save prints it. So a rule that this process wrote equals one in the kernel
// if and only if their texts are equal, and whoever can read iptables-save can read the code that composes
// rules.
//
// Invariant: input from outside (a name in a comment) enters a rule only as Text, which is quoted. A Script
// rejects every rule with a line break.
//
// Rules that are not listed in jumps.go and not in chains of ours are foreign: no function changes them. Start
// reading at Tool. What the programs cannot tell, or only slowly, nft.go asks by netlink and legacy_linux.go by
// getsockopt.
package iptables
