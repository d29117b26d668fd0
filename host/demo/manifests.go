// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/pointsman/pointsman/configs"
	"github.com/pointsman/pointsman/sdk/statefile"
)

// writeManifests makes a folder of the manifests that were built in, moved into the demo's
// network.
func writeManifests(folder string, n network) error {
	if err := os.Mkdir(folder, 0o755); err != nil {
		return err
	}
	for _, svc := range services() {
		text, err := configs.Demo.ReadFile("demo/" + svc.manifest)
		if err == nil {
			err = statefile.Write(filepath.Join(folder, svc.manifest), []byte(n.own(string(text))))
		}
		if err != nil {
			return fmt.Errorf("write the demo's manifests: %w", err)
		}
	}
	return nil
}

// withoutLine returns text without its one line that holds word, and that line.
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
