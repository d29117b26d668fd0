// SPDX-License-Identifier: Apache-2.0

package config

import "strings"

// A Problem is one thing that is wrong with the settings.
type Problem struct {
	Where Origin
	Field string // its path; empty: the file as a whole
	Why   string
	Try   string // what to do; may be empty
}

// String reads: "host.yaml:14: plugins.ipvs.opitons: unknown field; did you mean options?"
func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(p.Where.String() + ": ")
	if p.Field != "" {
		b.WriteString(p.Field + ": ")
	}
	b.WriteString(p.Why)
	if p.Try != "" {
		b.WriteString("; " + p.Try)
	}
	return b.String()
}

// Problems are all that is wrong, in the order of the file. They are an error.
type Problems []Problem

func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}
