// SPDX-License-Identifier: Apache-2.0

package test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// glossaryFile has a table of words for each part of the project. The last column of each
// table names the words that were retired.
const glossaryFile = "../docs/glossary.md"

// allowedNames may contain a retired word: what other programs, older versions and files on
// disk know them by cannot be renamed.
var allowedNames = map[string]string{
	"Stick":        "a message of the wire",
	"Sticks":       "a field of the wire",
	"GetSticks":    "generated for a field of the wire",
	"Leaving":      "a field of the wire",
	"GetLeaving":   "generated for a field of the wire",
	"swapSide":     "either dataplane of a swap, From or To",
	"swap_side":    "the file of swapSide",
	"TestSwapSide": "the test of swapSide",

	"CreationTimeStamp": "a field of Windows' structure, in golang.org/x/sys",
}

// retired are the words of the last column: those that nothing is named by, and those that
// prose does without, too.
func retired(t *testing.T) (inNames, inProse map[string]string) {
	t.Helper()
	inNames, inProse = map[string]string{}, map[string]string{}
	for line := range strings.Lines(read(t, glossaryFile)) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) != 6 {
			continue
		}
		instead := strings.TrimSpace(cells[1])
		for _, word := range strings.Split(strings.TrimSpace(cells[4]), ", ") {
			if word == "" || word == "not" || strings.HasPrefix(word, "--") {
				continue // no word was retired, or this is the head of a table
			}
			name := strings.Trim(word, "*")
			inNames[name] = instead
			if name == word {
				inProse[name] = instead
			}
		}
	}
	if len(inNames) < 30 || len(inProse) < 15 || inProse["yard"] != "dataplane" || inNames["told"] == "" {
		t.Fatalf("the table of %s is not read as it should be: %v, %v", glossaryFile, inNames, inProse)
	}
	return inNames, inProse
}

// TestGlossaryNames holds every identifier of the project to the glossary, word by word.
func TestGlossaryNames(t *testing.T) {
	inNames, _ := retired(t)
	seen := map[string]bool{}
	for _, path := range held(t, ".go") {
		if strings.HasSuffix(path, ".pb.go") {
			continue // generated: its names are those of the wire
		}
		name := strings.TrimSuffix(filepath.Base(path), ".go")
		if word := retiredOf(wordsOf(name), inNames); word != "" && allowedNames[name] == "" {
			t.Errorf("%s: the file's name has %q: use %q", path, word, inNames[word])
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			id, is := n.(*ast.Ident)
			if !is || allowedNames[id.Name] != "" {
				return true
			}
			word := retiredOf(wordsOf(id.Name), inNames)
			if key := path + " " + id.Name; word != "" && !seen[key] {
				seen[key] = true
				t.Errorf("%s: %s has %q: use %q", set.Position(id.Pos()), id.Name, word, inNames[word])
			}
			return true
		})
	}
}

// TestGlossaryProse holds comments, messages and pages to the glossary: words that are not
// plain English are in none of them.
func TestGlossaryProse(t *testing.T) {
	_, inProse := retired(t)
	word := regexp.MustCompile(`(?i)\b(` + strings.Join(slices.Sorted(maps.Keys(inProse)), "|") + `)s?\b`)
	for _, path := range held(t, ".go", ".md", ".yaml", ".service", ".txtar") {
		if strings.HasSuffix(path, ".pb.go") || path == glossaryFile || filepath.Base(path) == "glossary_test.go" || filepath.Base(path) == "CHANGELOG.md" {
			continue // what speaks of the words themselves; the changelog names what was renamed
		}
		number := 0
		for line := range strings.Lines(read(t, path)) {
			number++
			if found := word.FindString(line); found != "" {
				t.Errorf("%s:%d: %q is retired: use the word of docs/glossary.md", path, number, found)
			}
		}
	}
}

// TestGlossaryFinds makes sure that the words of a name are found.
func TestGlossaryFinds(t *testing.T) {
	for name, want := range map[string]string{
		"newYard": "new yard", "yardOf": "yard of", "HTTPPlane2x": "http plane x", "ears": "ears", "bury_linux": "bury linux",
		"controlPlane": "control plane", "award": "award",
	} {
		if got := strings.Join(wordsOf(name), " "); got != want {
			t.Errorf("wordsOf(%q) = %q, want %q", name, got, want)
		}
	}
}

// held are the project's files with one of the extensions.
func held(t *testing.T, extensions ...string) []string {
	t.Helper()
	var paths []string
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() && (name == ".git" || name == "bin") {
			return fs.SkipDir
		}
		if !entry.IsDir() && slices.Contains(extensions, filepath.Ext(name)) {
			paths = append(paths, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

// wordsOf splits a name at capitals, digits and underscores, in lower case.
func wordsOf(name string) []string {
	var words []string
	begin := 0
	end := func(at int) {
		if at > begin {
			words = append(words, strings.ToLower(name[begin:at]))
		}
	}
	for i, c := range name {
		switch {
		case !unicode.IsLetter(c):
			end(i)
			begin = i + utf8.RuneLen(c)
		case unicode.IsUpper(c) && i > begin && (!unicode.IsUpper(rune(name[i-1])) || i+1 < len(name) && unicode.IsLower(rune(name[i+1]))):
			end(i)
			begin = i
		}
	}
	end(len(name))
	return words
}

func retiredOf(words []string, inNames map[string]string) string {
	for _, word := range words {
		if inNames[word] != "" {
			return word
		}
	}
	return ""
}
