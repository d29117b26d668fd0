// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const docs = "../../docs/configuration.md"

// TestDocs compares the tables of fields in docs/configuration.md with defaults.yaml: its sections, comments and
// defaults, and whether a running host applies a change of the field. With POINTSMAN_UPDATE_DOCS it writes the tables.
func TestDocs(t *testing.T) {
	all := everyField()
	_, live, _ := apply(&Host{Mode: "NAME", Plugins: map[string]Plugin{"NAME": {Address: "x"}}}, all)
	defaults := new(Host).decode([]byte(Defaults))
	missing := flatten(all)
	var tables strings.Builder
	for _, f := range describedFields(Defaults) {
		if f.path == "" {
			fmt.Fprintf(&tables, "\n### %s\n\n| field | default | change | meaning |\n|---|---|---|---|\n", f.meaning)
			continue
		}
		if _, ok := missing[f.path]; !ok {
			t.Errorf("defaults.yaml describes %s, which is not a field, or describes it twice", f.path)
		}
		delete(missing, f.path)
		meaning, isLive := strings.CutSuffix(f.meaning, " [live]")
		if isLive != slices.Contains(live, f.path) {
			t.Errorf("defaults.yaml marks %s [live]: %t, but apply says %t", f.path, isLive, !isLive)
		}
		value := strings.ReplaceAll(unquote(defaults[f.path]), `"`, "")
		if value != "" {
			value = "`" + value + "`"
		}
		meaning = regexp.MustCompile(`docs/([a-z-]+)\.md`).ReplaceAllString(meaning, "[$1]($1.md)")
		fmt.Fprintf(&tables, "| `%s` | %s | %s | %s |\n", f.path, value, map[bool]string{true: "live", false: "restart"}[isLive], meaning)
	}
	delete(missing, "apiVersion")
	delete(missing, "kind")
	for path := range missing {
		t.Errorf("defaults.yaml does not describe %s", path)
	}

	text, err := os.ReadFile(docs)
	must(t, err)
	const begin, end = "<!-- generated from defaults.yaml, by POINTSMAN_UPDATE_DOCS=1 go test ./host/config -->\n", "<!-- end -->"
	before, rest, found := strings.Cut(string(text), begin)
	have, after, _ := strings.Cut(rest, end)
	switch want := tables.String() + "\n"; {
	case !found:
		t.Fatalf("%s has no line %q", docs, begin)
	case have == want:
	case os.Getenv("POINTSMAN_UPDATE_DOCS") != "":
		if err := os.WriteFile(docs, []byte(before+begin+want+end+after), 0o644); err != nil {
			t.Error(err)
		}
	default:
		t.Errorf("the tables of %s are stale: POINTSMAN_UPDATE_DOCS=1 go test ./host/config", docs)
	}
}

// A describedField is a field of the file with its comment. Without a path it is the heading of a section.
type describedField struct{ path, meaning string }

// describedFields returns the fields of a YAML file whose lines are block mappings, each with the comment above it.
// A comment can also describe fields below the next one, each in lines "#   PATH: text" with continuation lines
// that are indented further; below a mapping without entries they belong to NAME.
func describedFields(file string) (all []describedField) {
	var comment, below []string
	var parents []string // the path of the mapping that contains the line
	for line := range strings.Lines(file) {
		line = strings.TrimSuffix(line, "\n")
		indent := len(line) - len(strings.TrimLeft(line, " "))
		text, isComment := strings.CutPrefix(line[indent:], "#")
		switch {
		case strings.HasPrefix(text, "# ") && isComment:
			all = append(all, describedField{meaning: text[2:]})
		case isComment && strings.HasPrefix(text, "     "):
			below[len(below)-1] += text[4:]
		case isComment && strings.HasPrefix(text, "   "):
			below = append(below, text[3:])
		case isComment:
			comment = append(comment, strings.TrimSpace(text))
		case line == "":
			comment, below = nil, nil
		default:
			name, value, _ := strings.Cut(line[indent:], ":")
			parents = append(parents[:indent/2], name)
			path, prefix := strings.Join(parents, "."), strings.Join(parents, ".")+"."
			if strings.TrimSpace(value) == "{}" {
				prefix += "NAME."
			}
			for _, field := range below {
				sub, meaning, _ := strings.Cut(field, ": ")
				all = append(all, describedField{prefix + sub, meaning})
			}
			if value != "" && len(below) == 0 && len(comment) > 0 {
				all = append(all, describedField{path, strings.Join(comment, " ")})
			}
			comment, below = nil, nil
		}
	}
	return all
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
			v.Set(reflect.MakeSlice(v.Type(), 0, 0)) // a nil slice is null
		}
	}
	fill(reflect.ValueOf(h).Elem())
	return h
}

// TestDocsExamples checks the files and the errors that the docs show.
func TestDocsExamples(t *testing.T) {
	text, err := os.ReadFile(docs)
	must(t, err)
	for _, m := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		if _, err := Parse("docs.yaml", []byte(m[1]), nil); err != nil {
			t.Errorf("an example in the docs is refused: %v", err)
		}
	}
	_, err = Parse("host.yaml", []byte(head+"mod: ipvs\nclusterCIDR: 10.244.0.0/16\nsyncPeriod: 30\nlogging: {level: loud}\n"), nil)
	if err == nil {
		t.Fatal("the file with errors is accepted")
	}
	if !strings.Contains(string(text), "\n"+err.Error()+"\n") {
		t.Errorf("the docs lack\n%v", err)
	}
}

// TestChartSchema checks that the schema of the chart has the fields of the config except those that the chart sets, so
// that the chart refuses a misspelled field.
func TestChartSchema(t *testing.T) {
	const file = "../../charts/pointsman/values.schema.json"
	object := func() map[string]any {
		return map[string]any{"type": "object", "additionalProperties": false, "properties": map[string]any{}}
	}
	want := object()
	for path := range flatten(everyField()) {
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
	must(t, err)
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
