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

// TestNamedTests looks for every test that the Makefile or .ci/rota names: go test says nothing about a name without a
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
	for _, file := range []string{"../Makefile", "../.ci/rota"} {
		for _, m := range regexp.MustCompile(`\b(Test\w*)\(([\w|]+)\)`).FindAllStringSubmatch(read(t, file), -1) {
			for name := range strings.SplitSeq(m[2], "|") {
				if !slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(n, m[1]+name) }) {
					t.Errorf("%s names %s, and there is no such test", file, m[1]+name)
				}
			}
		}
	}
}
