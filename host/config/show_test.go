// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestConfigs loads every host's file that comes with Pointsman.
func TestConfigs(t *testing.T) {
	files, err := filepath.Glob("../../configs/*.yaml")
	if err != nil || len(files) < 3 {
		t.Fatalf("found %q: %v", files, err)
	}
	for _, file := range files {
		if _, err := Load(file, nil); err != nil {
			t.Errorf("%s:\n%v", file, err)
		}
	}
}

// The defaults that are printed are the ones in force, each field is among them,
// and the copy among the configs is that text.
func TestDefaults(t *testing.T) {
	copied, err := os.ReadFile("../../configs/defaults.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if string(copied) != Defaults() {
		t.Error("configs/defaults.yaml is not what `pointsman config defaults` prints: copy host/config/defaults.yaml there")
	}
	r := read(Default, "defaults.yaml", []byte(Defaults()))
	for _, f := range fields(withSources()) {
		if _, ok := r.given[f.path]; !ok && f.path != "source.files.path" {
			t.Errorf("defaults.yaml lacks %s", f.path)
		}
	}
	fresh, read := mustLoad(t, "", nil), mustLoad(t, "../../configs/defaults.yaml", nil)
	if d := differences(fresh, read); len(d) > 0 {
		t.Errorf("the printed defaults change %v", d)
	}
	if fresh.SyncPeriod != 30*time.Second || fresh.Linux.MasqueradeBit != 14 || fresh.Linux.Conntrack.TCPEstablishedTimeout != 24*time.Hour {
		t.Errorf("defaults are %s", mustJSON(t, fresh))
	}
}

// What is shown is a file that brings the same settings about.
func TestShow(t *testing.T) {
	h := mustLoad(t, "testdata/show.yaml", nil)
	for _, tc := range []struct {
		file    string
		show    func(bool) ([]byte, error)
		origins bool
	}{
		{"testdata/show.txt", h.YAML, false},
		{"testdata/show-origins.txt", h.YAML, true},
		{"testdata/show.json", h.JSON, false},
		{"testdata/show-origins.json", h.JSON, true},
	} {
		text, err := tc.show(tc.origins)
		if err != nil {
			t.Fatal(err)
		}
		golden(t, tc.file, string(text))
	}
	again, err := load("again.yaml", mustYAML(t, h), nil)
	if err != nil {
		t.Fatal(err)
	}
	if d := differences(h, again); len(d) > 0 {
		t.Errorf("what is shown changes %v", d)
	}
}

func mustYAML(t *testing.T, h *Host) []byte {
	t.Helper()
	text, err := h.YAML(true)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
