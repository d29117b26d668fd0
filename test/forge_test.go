// SPDX-License-Identifier: Apache-2.0

package test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// A workflow is one of the forge's, as far as these tests look at it.
type workflow struct {
	Permissions map[string]string
	Jobs        map[string]struct {
		Permissions map[string]string
		Steps       []struct {
			Uses, Run string
			With      map[string]string
		}
	}
}

func workflows(t *testing.T) map[string]workflow {
	t.Helper()
	files, err := filepath.Glob("../.github/workflows/*.yml")
	if err != nil || len(files) < 2 {
		t.Fatalf("found only %q: %v", files, err)
	}
	all := make(map[string]workflow)
	for _, file := range files {
		var w workflow
		if err := yaml.Unmarshal([]byte(read(t, file)), &w); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all[file] = w
	}
	return all
}

// TestWorkflows: what the forge runs of ours is there, what it takes from others is named by
// its hash, which always means the same, and no job may do more than read but where it says so.
func TestWorkflows(t *testing.T) {
	makefile := read(t, "../Makefile")
	pinned := regexp.MustCompile(`^[\w.-]+/[\w./-]+@[0-9a-f]{40}$`)
	for file, w := range workflows(t) {
		if len(w.Permissions) != 1 || w.Permissions["contents"] != "read" {
			t.Errorf("%s: what holds for all jobs is %v, want contents: read alone", file, w.Permissions)
		}
		for name, job := range w.Jobs {
			for _, step := range job.Steps {
				if step.Uses != "" && !pinned.MatchString(step.Uses) {
					t.Errorf("%s: %s uses %s, which is not named by its hash", file, name, step.Uses)
				}
				for _, program := range regexp.MustCompile(`(?m)^\.(?:ci|github)/\w+`).FindAllString(step.Run, -1) {
					if i, err := os.Stat(filepath.Join("..", program)); err != nil || i.Mode()&0o111 == 0 {
						t.Errorf("%s: %s runs %s: %v", file, name, program, err)
					}
				}
				_, targets, _ := strings.Cut(step.Run, "make ")
				for _, target := range strings.Fields(targets) {
					if !strings.Contains(makefile, "\n"+target+":") {
						t.Errorf("%s: %s runs make %s, which the Makefile does not have", file, name, target)
					}
				}
			}
		}
	}
}

// TestWorkflowsRunAll: each change is held to the whole of .ci/run.
func TestWorkflowsRunAll(t *testing.T) {
	for _, job := range workflows(t)["../.github/workflows/test.yml"].Jobs {
		for _, step := range job.Steps {
			if strings.TrimSpace(step.Run) == ".ci/run" {
				return
			}
		}
	}
	t.Error("no job of .github/workflows/test.yml runs .ci/run")
}
