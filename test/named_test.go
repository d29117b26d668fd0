// SPDX-License-Identifier: Apache-2.0

package test

import (
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestNamedTests looks for every test that a page, the Makefile or .ci/rota names: go test says nothing about a name
// without a test. Pages for operators name none.
func TestNamedTests(t *testing.T) {
	there := map[string]bool{}
	err := filepath.WalkDir("..", func(path string, _ fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, "_test.go") {
			for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllStringSubmatch(read(t, path), -1) {
				there[m[1]] = true
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	names := slices.Collect(maps.Keys(there))
	for _, file := range []string{"../Makefile", "../.ci/rota"} {
		for _, m := range regexp.MustCompile(`\b(Test\w*)\(([\w|]+)\)`).FindAllStringSubmatch(read(t, file), -1) {
			for name := range strings.SplitSeq(m[2], "|") {
				if !slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(n, m[1]+name) }) {
					t.Errorf("%s names %s, and there is no such test", file, m[1]+name)
				}
			}
		}
	}
	for _, doc := range docs(t) {
		for _, m := range regexp.MustCompile(`\bTest[A-Z]\w+`).FindAllString(read(t, doc), -1) {
			if name := filepath.Base(doc); name != "CONTRIBUTING.md" && name != "architecture.md" && name != "performance.md" {
				t.Errorf("%s names %s, but only pages for contributors may name tests", doc, m)
			}
			if !there[m] {
				t.Errorf("%s names %s, and there is no such test", doc, m)
			}
		}
	}
}
