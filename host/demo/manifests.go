// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// copyManifests copies a folder of manifests, moved into the demo's network.
func copyManifests(from, to string, n network) error {
	if err := os.Mkdir(to, 0o755); err != nil {
		return err
	}
	for _, svc := range services() {
		text, err := os.ReadFile(filepath.Join(from, svc.manifest))
		if err != nil {
			return fmt.Errorf("copy the demo's manifests: %w", err)
		}
		if err := os.WriteFile(filepath.Join(to, svc.manifest), []byte(n.own(string(text))), 0o644); err != nil {
			return fmt.Errorf("copy the demo's manifests: %w", err)
		}
	}
	return nil
}

// withoutLine is text without its one line that holds word, and that line.
func withoutLine(text, word string) (rest, line string, err error) {
	var kept []string
	found := 0
	for l := range strings.Lines(text) {
		if strings.Contains(l, word) {
			line = strings.TrimRight(l, "\n")
			found++
			continue
		}
		kept = append(kept, l)
	}
	if found != 1 {
		return "", "", fmt.Errorf("%d lines hold %q, want one", found, word)
	}
	return strings.Join(kept, ""), line, nil
}

// replace puts a file in place of another at once, as an editor does.
func replace(file, text string) error {
	next := filepath.Join(filepath.Dir(file), "."+filepath.Base(file)+".new") // the host does not read names that begin with a dot
	if err := os.WriteFile(next, []byte(text), 0o644); err != nil {
		return err
	}
	return os.Rename(next, file)
}
