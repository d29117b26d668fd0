// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pointsman/pointsman/sdk/wire"
)

func manVerb() *cobra.Command {
	return &cobra.Command{
		Use:    "man DIR",
		Short:  "Write the manual pages of all verbs into a folder",
		Args:   words(1, 1, "a folder"),
		Hidden: true, // it is for those who build packages

		ValidArgsFunction: eachWord(completeFolders),
		RunE: func(c *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			for name, text := range manuals(c.Root()) {
				if err := os.WriteFile(filepath.Join(args[0], name), []byte(text), 0o644); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// manuals returns the page of each verb by its file name. The text is that of the verb's help.
func manuals(root *cobra.Command) map[string]string {
	all := make(map[string]string)
	for _, c := range everyVerb(root) {
		if c == root || c.IsAvailableCommand() {
			all[manName(c)+".1"] = manual(c)
		}
	}
	return all
}

// manName returns the name of a verb's page: pointsman-service-list.
func manName(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

// manual returns the page of one verb, in man(7).
func manual(c *cobra.Command) string {
	var p manText
	p.line(".TH %s 1 \"\" \"pointsman %s\" \"Pointsman\"", quoted(strings.ToUpper(manName(c))), escaped(wire.Build()))
	p.line(".SH NAME\n%s \\- %s", escaped(manName(c)), escaped(c.Short)) // whatis(1) reads it
	p.line(".SH SYNOPSIS\n.B %s", escaped(c.UseLine()))
	p.line(".SH DESCRIPTION")
	p.paragraphs(orElse(c.Long, c.Short+"."))
	p.verbs(c)
	c.InitDefaultHelpFlag()
	p.flags("OPTIONS", c.NonInheritedFlags())
	p.flags("OPTIONS OF EVERY VERB", c.InheritedFlags())
	if c.Example != "" {
		p.line(".SH EXAMPLES")
		p.paragraphs(c.Example)
	}
	p.line(".SH EXIT STATUS")
	for _, e := range exits() {
		p.line(".TP\n.B %d\n%s", e.code, escaped(e.meaning))
	}
	p.line(".SH SEE ALSO\n%s", seeAlso(c))
	return p.String()
}

// An exit is what a verb ends with, and what that means.
type exit struct {
	code    int
	meaning string
}

func exits() []exit {
	return []exit{
		{exitOK, "done; for status: all is well"},
		{exitFailed, "it failed; the reason is on stderr, with what to do"},
		{exitDegraded, "done, and there is something to look at"},
		{exitUnreachable, "no host answers on the socket"},
		{exitUsage, "the command itself is wrong, or run has a mode without a plugin"},
	}
}

func orElse(text, other string) string {
	if text == "" {
		return other
	}
	return text
}

// A manText is a page that is being written.
type manText struct{ strings.Builder }

func (p *manText) line(format string, args ...any) { fmt.Fprintf(p, format+"\n", args...) }

// paragraphs writes text as it stands in a verb's help: what is indented stays as it is, and the
// rest is filled.
func (p *manText) paragraphs(text string) {
	ended := false // a paragraph is, and the next one has not begun
	for line := range strings.SplitSeq(strings.Trim(text, "\n"), "\n") {
		if strings.TrimSpace(line) == "" {
			ended = true
			continue
		}
		if ended {
			p.line(".PP")
		}
		ended = false
		if strings.HasPrefix(line, " ") || strings.HasPrefix(line, "\t") {
			p.line(".nf\n%s\n.fi", escaped(line))
		} else {
			p.line("%s", escaped(line))
		}
	}
}

// verbs writes those below c.
func (p *manText) verbs(c *cobra.Command) {
	var below []*cobra.Command
	for _, v := range c.Commands() {
		if v.IsAvailableCommand() {
			below = append(below, v)
		}
	}
	if len(below) > 0 {
		p.line(".SH VERBS")
	}
	for _, v := range below {
		p.line(".TP\n.B %s\n%s", escaped(v.Name()), escaped(v.Short))
	}
}

func (p *manText) flags(title string, flags *pflag.FlagSet) {
	if flags.HasAvailableFlags() {
		p.line(".SH %s", title)
	}
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		value, usage := pflag.UnquoteUsage(f)
		p.line(".TP\n%s\n%s", flagLine(f, value), escaped(usage+defaultOf(f)))
	})
}

// flagLine returns a flag as it is typed: -o, --output FORMAT.
func flagLine(f *pflag.Flag, value string) string {
	line := "\\fB" + escaped("--"+f.Name) + "\\fR"
	if f.Shorthand != "" {
		line = "\\fB" + escaped("-"+f.Shorthand) + "\\fR, " + line
	}
	switch {
	case value == "":
		return line
	case f.NoOptDefVal != "":
		return line + "[=\\fI" + escaped(value) + "\\fR]"
	}
	return line + " \\fI" + escaped(value) + "\\fR"
}

// defaultOf returns how help names the default of a flag; empty: it is nothing.
func defaultOf(f *pflag.Flag) string {
	switch f.DefValue {
	case "", "false", "0", "0s", "[]":
		return ""
	}
	return " (default " + f.DefValue + ")"
}

// seeAlso returns the page above a verb and those below it.
func seeAlso(c *cobra.Command) string {
	var names []string
	if c.HasParent() {
		names = append(names, manName(c.Parent()))
	}
	for _, v := range c.Commands() {
		if v.IsAvailableCommand() {
			names = append(names, manName(v))
		}
	}
	for i := range names {
		names[i] = fmt.Sprintf(".BR %s (1)", escaped(names[i]))
		if i < len(names)-1 {
			names[i] += " ,"
		}
	}
	return strings.Join(names, "\n")
}

// escaped returns text so that roff(7) prints it as it is.
func escaped(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "`", `\(ga`, "'", `\(aq`, "^", `\(ha`, "~", `\(ti`).Replace(text)
	if strings.HasPrefix(text, ".") {
		text = `\&` + text
	}
	return strings.ReplaceAll(text, "\n", " ")
}

// quoted returns text as one argument of a macro.
func quoted(text string) string { return `"` + escaped(text) + `"` }
