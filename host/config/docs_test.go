// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding/json"
	"os"
	"reflect"
	"regexp"
	"slices"
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
	usual := new(Host).decode([]byte(Defaults))
	all := everyField()
	_, live, _ := apply(&Host{Mode: "NAME", Plugins: map[string]Plugin{"NAME": {Address: "x"}}}, all)
	for path := range leaves(all) {
		row, ok := rows[path]
		if !ok {
			t.Errorf("%s lacks %s", docs, path)
			continue
		}
		delete(rows, path)
		if want := map[bool]string{true: "live", false: "restart"}[slices.Contains(live, path)]; row[1] != want {
			t.Errorf("%s says %s of %s, which is %s", docs, row[1], path, want)
		}
		raw, _ := usual[path].(json.RawMessage)
		want := "`" + strings.ReplaceAll(plain(raw), `"`, "") + "`"
		switch {
		case path == "apiVersion" || path == "kind":
		case want == "``" && slices.Contains([]string{"none", "", "empty"}, row[0]):
		case row[0] != want:
			t.Errorf("%s gives %s the default %s, which is %s", docs, path, row[0], want)
		}
	}
	for path := range rows {
		t.Errorf("%s has %s, which is no field", docs, path)
	}
}

// everyField returns a Host with all fields set, also those of a plugin NAME.
func everyField() *Host {
	h := &Host{
		Source:  Source{Kubernetes: &Kubernetes{}, Files: &Files{}},
		Plugins: map[string]Plugin{"NAME": {Path: "x", SHA256: "x", Address: "x", Debug: true, Options: []byte(`{"a":1}`)}},
	}
	var fill func(v reflect.Value)
	fill = func(v reflect.Value) {
		switch v.Kind() {
		case reflect.Struct:
			for i := range v.NumField() {
				if v.Field(i).CanSet() {
					fill(v.Field(i))
				}
			}
		case reflect.String:
			v.SetString("x")
		case reflect.Bool:
			v.SetBool(true)
		case reflect.Int, reflect.Int64:
			v.SetInt(1)
		case reflect.Float64:
			v.SetFloat(1)
		case reflect.Slice:
			v.Set(reflect.MakeSlice(v.Type(), 0, 0)) // others are null
		}
	}
	fill(reflect.ValueOf(h).Elem())
	return h
}

// TestDocsExamples checks the file and the complaints that the docs show.
func TestDocsExamples(t *testing.T) {
	text, err := os.ReadFile(docs)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		if _, err := Parse("docs.yaml", []byte(m[1]), nil); err != nil {
			t.Errorf("an example in the docs is wrong: %v", err)
		}
	}
	_, err = Parse("host.yaml", []byte(head+"mod: ipvs\nclusterCIDR: 10.244.0.0/16\nsyncPeriod: 30\nlogging: {level: loud}\n"), nil)
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
	for path := range leaves(everyField()) {
		if path == "apiVersion" || path == "kind" || path == "mode" {
			continue
		}
		at, names := want, strings.Split(path, ".")
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
