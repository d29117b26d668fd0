// SPDX-License-Identifier: Apache-2.0

package test

import (
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestNamedTests looks for every test that the suites and CONTRIBUTING.md name: go test says nothing about a name without a
// test.
func TestNamedTests(t *testing.T) {
	var names []string
	err := filepath.WalkDir("..", func(path string, _ fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, "_test.go") {
			for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllStringSubmatch(read(t, path), -1) {
				names = append(names, m[1])
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	pattern := regexp.MustCompile(`\^(Test\w*)(?:\(([\w|]+)\))?(\$?)`)
	for _, file := range []string{"../Makefile", "../.ci/rota", "../CONTRIBUTING.md", "uml/suite"} {
		for _, m := range pattern.FindAllStringSubmatch(read(t, file), -1) {
			for end := range strings.SplitSeq(m[2], "|") {
				name := m[1] + end
				if !slices.ContainsFunc(names, func(n string) bool { return n == name || m[3] == "" && strings.HasPrefix(n, name) }) {
					t.Errorf("%s names %s, and there is no such test", file, name)
				}
			}
		}
	}
}
