// SPDX-License-Identifier: Apache-2.0

package test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"os"
	"path/filepath"
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

// TestNftablesIsSmall: a dataplane brings what its rules mean, and no more. What it shares with others,
// and what any table of nf_tables needs, has rooms of its own; and of nf_tables we encode only what we use.
func TestNftablesIsSmall(t *testing.T) {
	for _, room := range []struct {
		files []string
		most  int
	}{
		{[]string{"plugins/nftables/*.go", "plugins/nftables/*/*.go"}, 1500},
		{[]string{"plugins/internal/nftnl/attr.go", "plugins/internal/nftnl/batch.go", "plugins/internal/nftnl/expr.go", "plugins/internal/nftnl/fault.go", "plugins/internal/nftnl/set.go"}, 600},
	} {
		lines := 0
		for _, pattern := range room.files {
			names, err := filepath.Glob(filepath.Join("..", pattern))
			if err != nil || len(names) == 0 {
				t.Fatalf("%s: %d files, %v", pattern, len(names), err)
			}
			for _, name := range names {
				if !strings.HasSuffix(name, "_test.go") {
					lines += codeIn(t, name)
				}
			}
		}
		if lines > room.most {
			t.Errorf("%s have %d lines of code, more than %d", strings.Join(room.files, ", "), lines, room.most)
		}
	}
}

// codeIn is how many lines of a file have something else than comments.
func codeIn(t *testing.T, name string) int {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	files := token.NewFileSet()
	file := files.AddFile(name, files.Base(), len(text))
	var s scanner.Scanner
	s.Init(file, text, nil, 0) // comments are skipped
	lines := make(map[int]bool)
	for {
		at, kind, literal := s.Scan()
		if kind == token.EOF {
			return len(lines)
		}
		if kind == token.SEMICOLON && literal == "\n" {
			continue // it is written nowhere
		}
		for i := range 1 + strings.Count(literal, "\n") {
			lines[file.Line(at)+i] = true
		}
	}
}
