// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// readable returns the words of a page as man shows them.
func readable(text string) string {
	text = regexp.MustCompile(`\\f[BIR]|(?m)^\.(B|TP|nf|fi|PP)\b ?`).ReplaceAllString(text, "")
	text = strings.NewReplacer(`\-`, "-", `\e`, `\`, `\(aq`, "'", `\(ga`, "`", `\(ti`, "~", `\(ha`, "^", `\&`, "").Replace(text)
	return strings.Join(strings.Fields(text), " ")
}

// TestManuals holds the page of each verb to its help: every word and every flag.
func TestManuals(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "man1")
	if exit, stdout, stderr := do(t, "man", dir); exit != exitOK || stdout+stderr != "" {
		t.Fatalf("exit %d: %s%s", exit, stdout, stderr)
	}
	root, count := rootVerb(), 0
	for _, c := range everyVerb(root) {
		if c != root && !c.IsAvailableCommand() {
			continue
		}
		count++
		text, err := os.ReadFile(filepath.Join(dir, manName(c)+".1"))
		if err != nil {
			t.Error(err)
			continue
		}
		shown := readable(string(text))
		wants := []string{manName(c) + " - " + c.Short, orElse(c.Long, c.Short), c.Example, c.UseLine()}
		flag := func(f *pflag.Flag) {
			_, usage := pflag.UnquoteUsage(f)
			wants = append(wants, "--"+f.Name, usage)
		}
		c.LocalFlags().VisitAll(flag)
		c.InheritedFlags().VisitAll(flag)
		for _, want := range wants {
			if !strings.Contains(shown, strings.Join(strings.Fields(want), " ")) {
				t.Errorf("the page of %s does not have %q:\n%s", c.CommandPath(), want, shown)
			}
		}
	}
	if all, err := os.ReadDir(dir); err != nil || len(all) != count || count < 30 {
		t.Errorf("%d pages for %d verbs: %v", len(all), count, err)
	}
}

// TestManualsAreRoff has groff find nothing wrong with any page.
func TestManualsAreRoff(t *testing.T) {
	groff, err := exec.LookPath("groff")
	if err != nil {
		t.Skip("needs groff; on Debian: apt-get install groff")
	}
	for name, text := range manuals(rootVerb()) {
		cmd := exec.Command(groff, "-man", "-ww", "-Kutf8", "-Tutf8", "-P-cbou")
		cmd.Stdin = strings.NewReader(text)
		var complaints strings.Builder
		cmd.Stderr = &complaints
		if out, err := cmd.Output(); err != nil || complaints.Len() > 0 || !strings.Contains(string(out), "\nEXIT STATUS\n") {
			t.Errorf("%s: %v: %s", name, err, &complaints)
		}
	}
}

// TestExitsOfManuals are those that docs/cli.md promises.
func TestExitsOfManuals(t *testing.T) {
	doc, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(doc), "\n## Exits\n")
	table, _, _ = strings.Cut(table, "\n## ")
	promised := regexp.MustCompile(`(?m)^\| (\d+) \|`).FindAllStringSubmatch(table, -1)
	var want, got []string
	for _, row := range promised {
		want = append(want, row[1])
	}
	for _, e := range exits() {
		got = append(got, fmt.Sprint(e.code))
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("the pages have the exits %q, docs/cli.md %q", got, want)
	}
}

// TestEscaped shows letters that mean something to roff.
func TestEscaped(t *testing.T) {
	for text, want := range map[string]string{
		`a\b`:          `a\eb`,
		"--wait":       `\-\-wait`,
		".5 s":         `\&.5 s`,
		"'quoted'":     `\(aqquoted\(aq`,
		"two\nlines":   "two lines",
		"~/x `y` ^FRE": `\(ti/x \(gay\(ga \(haFRE`,
	} {
		if got := escaped(text); got != want {
			t.Errorf("%q is escaped to %q, want %q", text, got, want)
		}
	}
}
