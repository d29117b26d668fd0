// SPDX-License-Identifier: Apache-2.0

//go:build man

package main

import (
	"log"
	"os"

	"github.com/spf13/cobra/doc"

	"github.com/pointsman/pointsman/sdk/wire"
)

// init writes the manual pages of all verbs into the folder that the first argument names, in a program
// that is built with the tag man. It is in this package because no other package can import the verbs.
func init() {
	if len(os.Args) != 2 {
		log.Fatal("want a folder for the manual pages")
	}
	root := rootVerb()
	root.DisableAutoGenTag = true
	header := &doc.GenManHeader{Section: "1", Source: "pointsman " + wire.Build(), Manual: "Pointsman"}
	err := os.MkdirAll(os.Args[1], 0o755)
	if err == nil {
		err = doc.GenManTree(root, header, os.Args[1])
	}
	if err != nil {
		log.Fatal(err)
	}
	os.Exit(0)
}
