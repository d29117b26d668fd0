// SPDX-License-Identifier: Apache-2.0

/*
Command pointsman is the host: it watches Services, decides what this node serves
of them, and keeps a dataplane plugin told. Its other verbs ask a running host, or
look at this machine's files and plugins.

This package constructs, connects and waits; what it connects is in the folders
beside it:

	watch ─▶ track ─▶ feed ─▶ a plugin that supervise keeps alive
	                   └───▶ report ─▶ log, status        admin ◀─ other verbs
*/
package main

import (
	"os"
)

func main() { os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr)) }
