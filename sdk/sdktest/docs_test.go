// SPDX-License-Identifier: Apache-2.0

package sdktest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	reference  = regexp.MustCompile(`\[([a-z0-9-]+)\](:?)`)
	definition = regexp.MustCompile(`(?m)^\[([a-z0-9-]+)\]: (\S+)$`)
)

// TestDocsNameEveryScenario: the docs for users rest on scenarios that exist,
// and leave none out.
func TestDocsNameEveryScenario(t *testing.T) {
	docs := filepath.FromSlash("../../docs/what-a-service-means.md")
	data, err := os.ReadFile(docs)
	if err != nil {
		t.Fatal(err)
	}
	used, defined := map[string]bool{}, map[string]bool{}
	for _, m := range reference.FindAllStringSubmatch(string(data), -1) {
		used[m[1]] = used[m[1]] || m[2] == ""
	}
	for _, m := range definition.FindAllStringSubmatch(string(data), -1) {
		defined[m[1]] = true
		if _, err := os.Stat(filepath.Join(filepath.Dir(docs), filepath.FromSlash(m[2]))); err != nil {
			t.Errorf("%s: [%s] leads to %s: %v", docs, m[1], m[2], err)
		}
		if !used[m[1]] {
			t.Errorf("%s: nothing rests on [%s]", docs, m[1])
		}
	}
	for _, s := range Scenarios() {
		if !defined[s.Name] {
			t.Errorf("%s does not name scenario %s", docs, s.Name)
		}
		if !strings.HasSuffix(s.Doc, ".") {
			t.Errorf("%s: its words end without a full stop", s.Name)
		}
	}
	for name := range used {
		if !defined[name] {
			t.Errorf("%s: [%s] leads nowhere", docs, name)
		}
	}
}
