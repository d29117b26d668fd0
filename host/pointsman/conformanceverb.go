// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// conformanceProgram is the name of the program that holds plugins to the contract.
const conformanceProgram = "pointsman-conformance"

// conformanceVerb says where the conformance suite is: in a program of its own, so that the host
// that runs on nodes links no test kit.
func conformanceVerb() *cobra.Command {
	return &cobra.Command{
		Use:                "conformance",
		Short:              "Say how to hold a plugin to the contract",
		Hidden:             true,
		DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error {
			command := conformanceProgram
			for _, word := range args {
				command += " " + shellQuoted(word)
			}
			return usageError{fmt.Errorf("the conformance suite is a program of its own; run: %s", command)}
		},
	}
}

// shellQuoted returns a word as a shell has it.
func shellQuoted(word string) string {
	special := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("-_./:=@%+,", r)
	}
	if word != "" && !strings.ContainsFunc(word, special) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
