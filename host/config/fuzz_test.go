// SPDX-License-Identifier: Apache-2.0

package config

import (
	"os"
	"path/filepath"
	"testing"
	"unicode/utf8"
)

// FuzzLoad: no file makes reading panic or hang; what is wrong is always said; and
// a file that is taken, shown, and read again means the same.
func FuzzLoad(f *testing.F) {
	for _, pattern := range []string{"testdata/*.yaml", "testdata/wrong/*.yaml", "*.yaml", "../../configs/*.yaml"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		h, err := load("/fuzz.yaml", data, nil)
		if err != nil {
			if text := err.Error(); text == "" || !utf8.ValidString(text) {
				t.Errorf("says %q", text)
			}
			return
		}
		text, err := h.YAML(true)
		if err != nil {
			t.Fatal(err)
		}
		again, err := load("/again.yaml", text, nil)
		if err != nil {
			t.Fatalf("what is shown is not taken:\n%v\n%s", err, text)
		}
		if d := differences(h, again); len(d) > 0 {
			t.Errorf("what is shown changes %v:\n%s", d, text)
		}
		if _, err := h.JSON(false); err != nil {
			t.Error(err)
		}
	})
}
