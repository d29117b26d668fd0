// SPDX-License-Identifier: Apache-2.0

package test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/host/dataplanes"
)

// docs returns the pages that users read.
func docs(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, pattern := range []string{"../*.md", "../docs/*.md", "../plugins/*/README.md", "../plugins/README.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, found...)
	}
	if len(all) < 4 {
		t.Fatalf("found only %q", all)
	}
	return all
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestDocsLinks follows every link from a page to a file of the project and to a heading in it.
func TestDocsLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#:]*)(?:#([^)]*))?\)`)
	for _, doc := range docs(t) {
		for _, m := range link.FindAllStringSubmatch(read(t, doc), -1) {
			file := doc
			if m[1] != "" {
				file = filepath.Join(filepath.Dir(doc), m[1])
			}
			if _, err := os.Stat(file); err != nil {
				t.Errorf("%s links to %s, which is not there", doc, m[1])
			} else if m[2] != "" && !slices.Contains(anchors(read(t, file)), m[2]) {
				t.Errorf("%s links to the heading %s of %s, which is not there", doc, m[2], file)
			}
		}
	}
}

// anchors returns the fragments by which links name the headings of a page.
func anchors(text string) (all []string) {
	odd := regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(text, -1) {
		all = append(all, strings.ReplaceAll(odd.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-"))
	}
	return all
}

// generated compares the part of a page between the comments <!-- generated what --> and <!-- end --> with text.
// POINTSMAN_UPDATE_DOCS=1 writes the text there.
func generated(t *testing.T, page, what, text string) {
	t.Helper()
	was := read(t, page)
	begin := "<!-- generated " + what + ", by POINTSMAN_UPDATE_DOCS=1 go test ./test -->\n"
	head, rest, begins := strings.Cut(was, begin)
	_, tail, ends := strings.Cut(rest, "<!-- end -->")
	if !begins || !ends {
		t.Fatalf("%s has no place for what is generated %s", page, what)
	}
	want := head + begin + text + "<!-- end -->" + tail
	if os.Getenv("POINTSMAN_UPDATE_DOCS") != "" {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if was != want {
		t.Errorf("%s has not what is generated %s; try: POINTSMAN_UPDATE_DOCS=1 go test ./test", page, what)
	}
}

// TestShownExample compares the plugin that the author's guide shows with the source that is built.
func TestShownExample(t *testing.T) {
	code := strings.TrimPrefix(read(t, "../sdk/examples/printer/main.go"), "// SPDX-License-Identifier: Apache-2.0\n\n")
	generated(t, "../docs/writing-a-plugin.md", "from that file", "```go\n"+code+"```\n")
}

// TestOwnMetrics compares the table of the dataplanes' own metrics in docs/metrics.md with their help texts.
func TestOwnMetrics(t *testing.T) {
	labels := map[string]string{"ipvs": "`ip_family`", "nftables": "`ip_family`", "bytes": "`direction`"}
	var rows []string
	sources, _ := filepath.Glob("../plugins/*/*.go") // the pattern is valid
	for _, file := range sources {
		for _, m := range regexp.MustCompile(`Name: "(pointsman_([a-z]+)_([a-z]+)\w*)", Help: "(.*?)"`).FindAllStringSubmatch(read(t, file), -1) {
			row := fmt.Sprintf("| `%s` | %s | %s |\n", m[1], labels[m[2]]+labels[m[3]], m[4])
			rows = append(rows, strings.ReplaceAll(row, "|  |", "| |"))
		}
	}
	slices.Sort(rows)
	if rows = slices.Compact(rows); len(rows) < 10 {
		t.Fatalf("found only %q", rows)
	}
	generated(t, "../docs/metrics.md", "from the dataplanes", "| metric | labels | meaning |\n|---|---|---|\n"+strings.Join(rows, ""))
}

// TestStates compares the states of plugins that plugin list --help names with those of the code.
func TestStates(t *testing.T) {
	var named []string
	for _, m := range regexp.MustCompile("(?m)^- `([a-z]+)`:").FindAllStringSubmatch(read(t, "../host/pointsman/help/plugin-list.md"), -1) {
		named = append(named, m[1])
	}
	there := []string{"unused"} // by a running host
	for s := dataplanes.Stopped; s <= dataplanes.Refused; s++ {
		there = append(there, s.String())
	}
	slices.Sort(named)
	slices.Sort(there)
	if !slices.Equal(named, there) {
		t.Errorf("plugin list --help has the states %q of plugins, want %q", named, there)
	}
}

// TestDocsBudget checks that the pages stay within the budget of words that test/size prints.
func TestDocsBudget(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "./size").Output()
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	var words, most int
	if _, failed := fmt.Sscan(lines[len(lines)-1], &words, &most); err != nil || failed != nil || words < 10000 || words > most {
		t.Errorf("the pages have %d words, and may have %d (%v, %v); try: make size, and cut what says less", words, most, err, failed)
	}
}
