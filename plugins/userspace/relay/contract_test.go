// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestKnowsNoContract: of package sdk the relay uses the values that describe Services,
// and nothing of the contract between a host and a dataplane.
func TestKnowsNoContract(t *testing.T) {
	values := []string{
		"Service", "Frontend", "Endpoint", "Name", "Protocol", "TCP", "UDP", "Family", "FamilyOf", "IPv6",
		"Node", "Caller", "Origin", "OnPod", "OnNode", "Verdict", "Forward", "AffinityEntry",
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(gotoken.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			s, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if pkg, ok := s.X.(*ast.Ident); ok && pkg.Name == "sdk" && !slices.Contains(values, s.Sel.Name) {
				t.Errorf("%s uses sdk.%s", file, s.Sel.Name)
			}
			return true
		})
	}
}
