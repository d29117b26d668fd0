// SPDX-License-Identifier: Apache-2.0

package test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strings"
	"testing"
)

// How long a file and a function may be: what is longer does more than one thing, and
// cannot be read as a whole.
const (
	longestFile     = 350
	longestFunction = 60
)

// TestSizes: no file is too long, nor any of its functions. Tests may be long lists of cases, and
// what protoc writes is not read.
func TestSizes(t *testing.T) {
	for _, name := range held(t, ".go") {
		if strings.HasSuffix(name, "_test.go") || strings.HasSuffix(name, ".pb.go") {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if n := bytes.Count(text, []byte("\n")); n > longestFile {
			t.Errorf("%s has %d lines, more than %d: what in it stands on its own?", name, n, longestFile)
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, name, text, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			if f, is := d.(*ast.FuncDecl); is {
				if n := files.Position(f.End()).Line - files.Position(f.Pos()).Line + 1; n > longestFunction {
					t.Errorf("%s: %s has %d lines, more than %d: which of its steps has a name?", name, f.Name.Name, n, longestFunction)
				}
			}
		}
	}
}
