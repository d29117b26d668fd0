// SPDX-License-Identifier: Apache-2.0

package test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestNoCredentials has the host watch a cluster with a token, and looks for the token in the plugin: in its
// environment, command line and open files.
func TestNoCredentials(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	const token = "eyJhbGciOiJSUzI1NiJ9.a-token-that-nobody-else-has.c2lnbmF0dXJl"
	s.write("kubeconfig", `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "http://`+s.net+`200:6443"}}]
users: [{name: u, user: {token: `+token+`}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`)
	s.write("host.yaml", strings.Replace(s.text(""), "source: {files: {path: services}}", "source: {kubernetes: {kubeconfig: kubeconfig}}", 1))
	s.start()
	s.until("the plugin is up", func() error {
		st, err := s.Status(t.Context())
		if err == nil && st.Dataplane.PID == 0 {
			err = errors.New("it has no process")
		}
		return err
	})
	pid := s.plugin()
	secrets := []string{token, s.path("kubeconfig")}
	for _, what := range []string{"environ", "cmdline"} {
		text := read(t, fmt.Sprintf("/proc/%d/%s", pid, what))
		for _, secret := range append(secrets, "TOKEN", "KUBE") {
			if strings.Contains(text, secret) {
				t.Errorf("the plugin's %s contains %s", what, secret)
			}
		}
	}
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil || len(files) == 0 {
		t.Fatalf("what process %d has open: %v", pid, err)
	}
	for _, file := range files {
		path, _ := os.Readlink(file)                                                                           // or it is closed
		if strings.HasPrefix(path, "/") && path != os.DevNull && !strings.HasPrefix(path, "/sys/fs/cgroup/") { // Go reads its share of the processors there
			t.Errorf("the plugin has the file %s open", path)
		}
	}
}
