// SPDX-License-Identifier: Apache-2.0

// Package ipset asks the kernel about its sets of addresses and ports (ipset), and changes one entry of
// them at a time. It exists because the library's own messages give every port a protocol, which sets of ports
// refuse, and know no marks. What is done with whole sets is the program ipset's.
package ipset
