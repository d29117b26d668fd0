// SPDX-License-Identifier: Apache-2.0

package test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// A value is a leaf or a section of the chart's values.yaml: its path, its default as JSON, and the comment above it.
type value struct{ path, unset, comment string }

// values reads values.yaml. A block map is a section and its entries are values of their own.
func values(t *testing.T) (all []value) {
	t.Helper()
	var document yaml.Node
	if err := yaml.Unmarshal([]byte(read(t, "../charts/pointsman/values.yaml")), &document); err != nil {
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
			err := v.Decode(&unset)
			text, failed := json.Marshal(unset)
			if err := errors.Join(err, failed); err != nil {
				t.Fatal(err)
			}
			all = append(all, value{prefix + key.Value, string(text), comment})
		}
	}
	walk("", document.Content[0])
	return all
}

// TestChartReadme compares the table of values in the chart's README with values.yaml.
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
	generated(t, "../charts/pointsman/README.md", "from values.yaml", table)
}
