// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestKubeconfigSecrets: the credentials of a kubeconfig are known, also those in files that it names, and
// all lines of one that cannot be read.
func TestKubeconfigSecrets(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("token", "in-a-file\n")
	good := write("good", "users: [{name: u, user: {tokenFile: token, password: in-the-config}}]\n")
	bad := write("bad", "users: [{name: u\nuser: {password: in-no-yaml}}\n")
	for path, want := range map[string]string{good: "in-a-file\n in-the-config", bad: "users: [{name: u\nuser: {password: in-no-yaml}}\n"} {
		got := kubeconfigSecrets(path, true)
		slices.Sort(got)
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %q; want %q", filepath.Base(path), got, want)
		}
	}
	if got := kubeconfigSecrets(good, false); got != nil {
		t.Errorf("without a cluster: %q", got)
	}
	config := write("host.yaml", "source: {kubernetes: {kubeconfig: "+good+"}}\nplugins: {x: {options: {free: in-an-option}}}\nwrong: field\n")
	if got := unreadSecrets(config); !slices.Contains(got, "in-an-option") || !slices.Contains(got, "in-the-config") {
		t.Errorf("of a config file that cannot be used: %q", got)
	}
	if got := unreadSecrets(bad); len(got) != 1 {
		t.Errorf("of one that is no YAML: %q", got)
	}
}

// TestWebSecret: the token of the status page is known by the folder that the host keeps it in.
func TestWebSecret(t *testing.T) {
	dir := t.TempDir()
	settings := []byte(fmt.Sprintf(`{"stateDir": %q}`, dir))
	if got := webSecret(settings); got != nil {
		t.Errorf("where there is none: %q", got)
	}
	if err := os.WriteFile(webToken(dir), []byte("0123abcd\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := webSecret(settings); len(got) != 1 || got[0] != "0123abcd\n" {
		t.Errorf("%q", got)
	}
}

// TestEnvironmentSecrets: by their names.
func TestEnvironmentSecrets(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "environ")
	if err := os.WriteFile(path, []byte("HOME=/root\x00DB_PASSWORD=one=two\x00my_token=three\x00NODE_NAME=n1\x00"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := environmentSecrets(path); !slices.Equal(got, []string{"one=two", "three"}) {
		t.Errorf("%q", got)
	}
	if got := environmentSecrets(path + "-gone"); got != nil {
		t.Errorf("of a process that is gone: %q", got)
	}
}
