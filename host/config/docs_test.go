// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

const docs = "../../docs/configuration.md"

// TestDocs holds the user's docs against the settings: every field stands there,
// with its default, and with what a running host makes of a change.
func TestDocs(t *testing.T) {
	text, err := os.ReadFile(docs)
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
			t.Errorf("%s lacks %s", docs, f.path)
			continue
		}
		delete(rows, f.path)
		if want := map[bool]string{true: "live", false: "restart"}[Live(f.path)]; row[1] != want {
			t.Errorf("%s says %s of %s, which is %s", docs, row[1], f.path, want)
		}
		switch value := fmt.Sprint(values[f.path]); row[0] {
		case "none", "", "empty":
			if value != "" && values[f.path] != nil && f.path != "apiVersion" && f.path != "kind" {
				t.Errorf("%s gives no default for %s, which is %s", docs, f.path, value)
			}
		case "`" + value + "`":
		default:
			t.Errorf("%s gives %s the default %s, which is %s", docs, f.path, row[0], value)
		}
	}
	for path := range rows {
		t.Errorf("%s has %s, which is no field", docs, path)
	}
}

// TestDocsExamples checks the file and the complaints that the docs show.
func TestDocsExamples(t *testing.T) {
	text, err := os.ReadFile(docs)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		if _, err := load("docs.yaml", []byte(m[1]), nil); err != nil {
			t.Errorf("an example in the docs is wrong: %v", err)
		}
	}
	_, err = load("host.yaml", []byte(head+"mod: ipvs\nmasqueradeBit: 13\nsyncPeriod: 30\nlogging:\n  level: info\n  format: text\n  level: debug\n"), nil)
	if err == nil {
		t.Fatal("the wrong file is taken")
	}
	if !strings.Contains(string(text), "\n"+err.Error()+"\n") {
		t.Errorf("the docs do not show\n%v", err)
	}
}

// TestChartSchema: the chart takes each field in config, other than those that it sets itself, and no other
// one. The chart refuses a misspelled field before it reaches a node.
func TestChartSchema(t *testing.T) {
	const file = "../../charts/pointsman/values.schema.json"
	object := func() map[string]any {
		return map[string]any{"type": "object", "additionalProperties": false, "properties": map[string]any{}}
	}
	want := object()
	for _, f := range fields(withSources("NAME")) {
		if f.path == "apiVersion" || f.path == "kind" || f.path == "mode" {
			continue
		}
		at, names := want, strings.Split(f.path, ".")
		for i, name := range names {
			of := at["properties"].(map[string]any)
			switch {
			case name == "NAME" && at["additionalProperties"] == false: // the first field of a plugin
				at["additionalProperties"] = object()
				fallthrough
			case name == "NAME":
				at = at["additionalProperties"].(map[string]any)
			case i == len(names)-1:
				of[name] = map[string]any{}
			case of[name] == nil:
				of[name] = object()
				fallthrough
			default:
				at = of[name].(map[string]any)
			}
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var schema struct {
		Defs map[string]any `json:"$defs"`
	}
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(schema.Defs["hostConfig"], any(want)) {
		is, _ := json.MarshalIndent(want, "    ", "  ")
		t.Errorf("%s: $defs.hostConfig should be\n%s", file, is)
	}
}
