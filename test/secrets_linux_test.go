// SPDX-License-Identifier: Apache-2.0

package test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestNoCredentials has the host watch a cluster with a token, and looks for the token in the plugin: in its
// environment and command line, its open files, and its memory.
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
	for _, path := range openFiles(t, pid) {
		if strings.HasPrefix(path, "/") && path != os.DevNull && !strings.HasPrefix(path, "/sys/fs/cgroup/") { // Go reads its share of the processors there
			t.Errorf("the plugin has the file %s open", path)
		}
	}
	if found, err := hasInMemory(s.cmd.Process.Pid, secrets); errors.Is(err, fs.ErrPermission) {
		t.Skipf("the rest needs root, or a kernel that lets one read the memory of others: %v", err)
	} else if !found {
		t.Fatalf("the host itself does not know the token, so it would not be found in the plugin: %v", err)
	}
	if found, err := hasInMemory(pid, secrets); found || err != nil {
		t.Errorf("a secret is in the plugin's memory: %t, %v", found, err)
	}
}

// openFiles returns the files that a process has open.
func openFiles(t *testing.T, pid int) []string {
	t.Helper()
	fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil || len(fds) == 0 {
		t.Fatalf("what process %d has open: %v", pid, err)
	}
	var all []string
	for _, fd := range fds {
		if path, err := os.Readlink(fd); err == nil {
			all = append(all, path)
		}
	}
	return all
}

// hasInMemory reports whether a secret is in the writable memory of a process.
func hasInMemory(pid int, secrets []string) (bool, error) {
	maps, err := os.Open(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return false, err
	}
	defer maps.Close()
	memory, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		return false, err
	}
	defer memory.Close()
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		var from, to int64
		var mode string
		if _, err := fmt.Sscanf(lines.Text(), "%x-%x %s", &from, &to, &mode); err != nil || mode[:2] != "rw" {
			continue
		}
		for block := make([]byte, 1<<20); from < to; from += int64(len(block)) - 256 { // a secret may span two blocks
			n, _ := memory.ReadAt(block[:min(int64(len(block)), to-from)], from)
			for _, secret := range secrets {
				if bytes.Contains(block[:n], []byte(secret)) {
					return true, nil
				}
			}
		}
	}
	return false, nil
}
