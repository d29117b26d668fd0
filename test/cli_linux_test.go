// SPDX-License-Identifier: Apache-2.0

package test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// sections splits a page at its second-level headings.
func sections(text string) map[string]string {
	all := make(map[string]string)
	for _, part := range strings.Split(text, "\n## ")[1:] {
		head, body, _ := strings.Cut(part, "\n")
		all[head] = body
	}
	return all
}

// TestDocOfWarnings compares docs/warnings.md with the warning codes of the host.
func TestDocOfWarnings(t *testing.T) {
	doc := sections(read(t, "../docs/warnings.md"))
	documented := make(map[string]bool)
	for head := range doc {
		code, _, _ := strings.Cut(head, ":")
		documented[code] = true
	}
	for _, m := range regexp.MustCompile(`= "(W\d{3})"`).FindAllStringSubmatch(read(t, "../host/pointsman/backend.go")+read(t, "../host/health/assessment.go"), -1) {
		if !documented[m[1]] {
			t.Errorf("docs/warnings.md does not explain %s", m[1])
		}
		delete(documented, m[1])
	}
	for code := range documented {
		t.Errorf("docs/warnings.md explains %s, which the host does not have", code)
	}
}

// TestDocOfEvents compares the table of docs/events.md with the reasons of events and the comments behind them.
// POINTSMAN_UPDATE_DOCS=1 writes the table.
func TestDocOfEvents(t *testing.T) {
	warnings := make(map[string]string) // headings by code
	for head := range sections(read(t, "../docs/warnings.md")) {
		code, _, _ := strings.Cut(head, ":")
		warnings[code] = head
	}
	var rows []string
	reason := regexp.MustCompile(`(?m)^\s*(?:const )?[A-Z]\w+ += "([A-Z]\w+)"(?: +// (.*))?$`)
	for _, source := range []string{"report/report.go", "track/gate.go", "reach/here.go", "watch/link.go", "watch/manifest.go", "watch/event.go", "watch/kube.go", "health/server.go"} {
		found := reason.FindAllStringSubmatch(read(t, "../host/"+source), -1)
		if len(found) == 0 {
			t.Errorf("%s has no reasons any more", source)
		}
		for _, m := range found {
			if m[2] == "" {
				t.Errorf("%s does not say what %s means", source, m[1])
			}
			text := regexp.MustCompile(`W\d{3}`).ReplaceAllStringFunc(m[2], func(code string) string {
				return "[" + code + "](warnings.md#" + anchors("# " + warnings[code])[0] + ")"
			})
			rows = append(rows, fmt.Sprintf("| `%s` | %s |\n", m[1], text))
		}
	}
	slices.Sort(rows)
	generated(t, "../docs/events.md", "from the constants of the host", "| reason | meaning and remedy |\n|---|---|\n"+strings.Join(rows, ""))
}
