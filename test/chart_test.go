// SPDX-License-Identifier: Apache-2.0

package test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

const chart = "../charts/pointsman/"

// A value is one that the chart's values.yaml has: its path, what it is without a setting, and
// what the comment above it says.
type value struct{ path, unset, comment string }

// values reads values.yaml. What is a map with comments of its own is not one value but several.
func values(t *testing.T) (all []value) {
	t.Helper()
	var document yaml.Node
	if err := yaml.Unmarshal([]byte(read(t, chart+"values.yaml")), &document); err != nil {
		t.Fatal(err)
	}
	var walk func(prefix string, n *yaml.Node)
	walk = func(prefix string, n *yaml.Node) {
		for i := 0; i < len(n.Content); i += 2 {
			key, v := n.Content[i], n.Content[i+1]
			comment := strings.Join(strings.Fields(strings.ReplaceAll(key.HeadComment, "#", "")), " ")
			if v.Kind == yaml.MappingNode && v.Style&yaml.FlowStyle == 0 && key.Value != "resources" && key.Value != "dataplaneResources" && key.Value != "updateStrategy" {
				all = append(all, value{prefix + key.Value, "", comment})
				walk(prefix+key.Value+".", v)
				continue
			}
			var unset any
			if err := v.Decode(&unset); err != nil {
				t.Fatal(err)
			}
			text, err := json.Marshal(unset)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, value{prefix + key.Value, string(text), comment})
		}
	}
	walk("", document.Content[0])
	return all
}

// TestChartReadme holds the table of values in the chart's README against values.yaml; with
// POINTSMAN_UPDATE_CHART in the environment it writes the table.
func TestChartReadme(t *testing.T) {
	table := "| value | without a setting | meaning |\n|---|---|---|\n"
	for _, v := range values(t) {
		if v.unset != "" {
			v.unset = "`" + v.unset + "`"
		}
		if v.unset != "" || v.comment != "" {
			table += fmt.Sprintf("| `%s` | %s | %s |\n", v.path, v.unset, v.comment)
		}
	}
	const file = chart + "README.md"
	text := read(t, file)
	head, rest, ok := strings.Cut(text, " TestChartReadme -->\n")
	_, tail, ends := strings.Cut(rest, "<!-- end -->")
	if !ok || !ends {
		t.Fatal("the README has no place for the table")
	}
	want := head + " TestChartReadme -->\n" + table + "<!-- end -->" + tail
	if os.Getenv("POINTSMAN_UPDATE_CHART") != "" {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if text != want {
		t.Error("the table in charts/pointsman/README.md is not what values.yaml says; try: POINTSMAN_UPDATE_CHART=1 go test ./test -run TestChartReadme")
	}
}

// A schema is a part of values.schema.json, as far as these tests look at it.
type schema struct {
	Properties map[string]schema
	Closed     any `json:"additionalProperties"`
}

// UnmarshalJSON also takes the schema that is a truth value.
func (s *schema) UnmarshalJSON(text []byte) error {
	if string(text) == "false" || string(text) == "true" {
		return nil
	}
	type plain schema
	return json.Unmarshal(text, (*plain)(s))
}

// TestChartSchema: every value is in the schema and no other one, so that a wrong word is refused.
func TestChartSchema(t *testing.T) {
	var root schema
	if err := json.Unmarshal([]byte(read(t, chart+"values.schema.json")), &root); err != nil {
		t.Fatal(err)
	}
	inSchema := make(map[string]bool)
	var walk func(prefix string, s schema)
	walk = func(prefix string, s schema) {
		for name, p := range s.Properties {
			inSchema[prefix+name] = true
			if len(p.Properties) > 0 && p.Closed == false {
				walk(prefix+name+".", p)
			}
		}
	}
	walk("", root)
	if root.Closed != false {
		t.Error("the schema takes any word")
	}
	delete(inSchema, "global") // helm's own
	known := make(map[string]bool)
	for _, v := range values(t) {
		known[v.path] = true
		if !inSchema[v.path] {
			t.Errorf("values.schema.json does not have %s", v.path)
		}
	}
	for path := range inSchema {
		parent := path[:max(0, strings.LastIndex(path, "."))]
		if !known[path] && !slices.Contains([]string{"resources", "dataplaneResources", "updateStrategy", "updateStrategy.rollingUpdate"}, parent) {
			t.Errorf("values.schema.json has %s, which values.yaml does not", path)
		}
	}
}

// TestChartFiles: the alerts and the dashboard are those of configs/monitoring, and no copies.
func TestChartFiles(t *testing.T) {
	for _, name := range []string{"alerts.yaml", "dashboard.json"} {
		to, err := filepath.EvalSymlinks(chart + "files/" + name)
		if want := filepath.Join("..", "configs", "monitoring", name); err != nil || to != want {
			t.Errorf("charts/pointsman/files/%s is %s, %v; want a link to %s", name, to, err, want)
		}
	}
}

// TestChartImagesListed: Artifact Hub shows, and scans, the images that the chart runs, for the processors that they are
// built for.
func TestChartImagesListed(t *testing.T) {
	var chartYAML struct {
		AppVersion  string `yaml:"appVersion"`
		Annotations map[string]string
	}
	if err := yaml.Unmarshal([]byte(read(t, chart+"Chart.yaml")), &chartYAML); err != nil {
		t.Fatal(err)
	}
	var listed []struct {
		Name, Image string
		Platforms   []string
	}
	if err := yaml.Unmarshal([]byte(chartYAML.Annotations["artifacthub.io/images"]), &listed); err != nil {
		t.Fatal(err)
	}
	images := readImages(t)
	for _, i := range listed {
		if images[i.Name] == nil || i.Image != registry+i.Name+":"+chartYAML.AppVersion {
			t.Errorf("Chart.yaml lists %s as %s, which make images does not make", i.Name, i.Image)
		}
		if want := linuxTargets(t); !slices.Equal(i.Platforms, want) {
			t.Errorf("Chart.yaml lists %s for %q, and releases are built for %q", i.Name, i.Platforms, want)
		}
	}
	if len(listed) != len(images) {
		t.Errorf("Chart.yaml lists %d images, and there are %d", len(listed), len(images))
	}
}

// linuxTargets are what .goreleaser.yaml builds the host for: linux/amd64.
func linuxTargets(t *testing.T) (all []string) {
	t.Helper()
	for _, target := range releaseTargets(t)["pointsman"] {
		all = append(all, strings.Replace(target, "_", "/", 1))
	}
	return all
}
