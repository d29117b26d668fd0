// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

const page = "../../docs/configuration.md"

// TestPage holds the user's page against the settings: every field stands there,
// with its default, and with what a running host makes of a change.
func TestPage(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	rows := make(map[string][]string)
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)`(?: †)? \\| ?([^|]*?) ?\\| ([^|]*) \\| ").FindAllStringSubmatch(string(text), -1) {
		rows[m[1]] = m[2:]
	}
	defaults := mustLoad(t, "", nil)
	values := make(map[string]any)
	for _, s := range defaults.Settings() {
		values[s.Field] = s.Value
	}
	for _, f := range fields(withSources("NAME")) {
		row, ok := rows[f.path]
		if !ok {
			t.Errorf("%s lacks %s", page, f.path)
			continue
		}
		delete(rows, f.path)
		if want := map[bool]string{true: "live", false: "restart"}[Live(f.path)]; row[1] != want {
			t.Errorf("%s says %s of %s, which is %s", page, row[1], f.path, want)
		}
		switch value := fmt.Sprint(values[f.path]); row[0] {
		case "none", "", "empty":
			if value != "" && values[f.path] != nil && f.path != "apiVersion" && f.path != "kind" {
				t.Errorf("%s gives no default for %s, which is %s", page, f.path, value)
			}
		case "`" + value + "`":
		default:
			t.Errorf("%s gives %s the default %s, which is %s", page, f.path, row[0], value)
		}
	}
	for path := range rows {
		t.Errorf("%s has %s, which is no field", page, path)
	}
}

// TestPageExamples checks the file and the complaints that the page shows.
func TestPageExamples(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		if _, err := load("page.yaml", []byte(m[1]), nil); err != nil {
			t.Errorf("an example on the page is wrong: %v", err)
		}
	}
	_, err = load("host.yaml", []byte(head+"mod: ipvs\nmasqueradeBit: 13\nsyncPeriod: 30\nlogging:\n  level: info\n  format: text\n  level: debug\n"), nil)
	if err == nil {
		t.Fatal("the wrong file is taken")
	}
	if !strings.Contains(string(text), "\n"+err.Error()+"\n") {
		t.Errorf("the page does not show\n%v", err)
	}
}
