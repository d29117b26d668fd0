// SPDX-License-Identifier: Apache-2.0

package test

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// TestWorkflows: workflows pin the actions of others by hash, have no permission but to read unless a job adds more,
// and run .ci/run for each change.
func TestWorkflows(t *testing.T) {
	files, err := filepath.Glob("../.github/workflows/*.yml")
	if err != nil || len(files) < 2 {
		t.Fatalf("found only %q: %v", files, err)
	}
	for _, file := range files {
		var w struct {
			Permissions map[string]string
			Jobs        map[string]struct {
				Steps []struct{ Uses string }
			}
		}
		if err := yaml.Unmarshal([]byte(read(t, file)), &w); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if len(w.Permissions) != 1 || w.Permissions["contents"] != "read" {
			t.Errorf("%s: all jobs have the permissions %v, want contents: read", file, w.Permissions)
		}
		for name, job := range w.Jobs {
			for _, step := range job.Steps {
				if step.Uses != "" && !regexp.MustCompile(`@[0-9a-f]{40}$`).MatchString(step.Uses) {
					t.Errorf("%s: %s uses %s, which is not named by its hash", file, name, step.Uses)
				}
			}
		}
	}
	if !strings.Contains(read(t, "../.github/workflows/test.yml"), ".ci/run") {
		t.Error("no job of .github/workflows/test.yml runs .ci/run")
	}
}
