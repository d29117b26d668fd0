// SPDX-License-Identifier: Apache-2.0

package main

import (
	"embed"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
)

// helpTexts has a file help/VERB.md for each verb, such as mode-swap.md: its description in Markdown, and after a line
// "---" examples as typed in a terminal. docs/cli.md is generated from the same files.
//
//go:embed help
var helpTexts embed.FS

// A markdownLink is [text](target).
var markdownLink = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)

// helpText returns the description and the examples of a verb. They are empty for a verb that only groups others.
func helpText(c *cobra.Command) (description, examples string) {
	_, path, _ := strings.Cut(c.CommandPath(), " ")
	text, _ := helpTexts.ReadFile("help/" + strings.ReplaceAll(path, " ", "-") + ".md")
	description, examples, _ = strings.Cut(string(text), "\n---\n")
	return strings.TrimSpace(description), strings.TrimSpace(examples)
}

// setHelp sets the texts that --help prints for c and the verbs below it.
func setHelp(c *cobra.Command) {
	c.Long, c.Example = helpText(c)
	c.Long = markdownLink.ReplaceAllString(c.Long, "$1")
	for _, sub := range c.Commands() {
		setHelp(sub)
	}
}
