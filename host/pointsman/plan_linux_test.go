// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/pointsman/pointsman/test/eventually"
)

// TestChildrenAreNoKubeProxy: a child of kube-proxy that has not executed another program yet does not count as a
// second kube-proxy.
func TestChildrenAreNoKubeProxy(t *testing.T) {
	shell, err := os.ReadFile("/bin/sh")
	if err != nil {
		t.Skipf("needs a shell to copy: %v", err)
	}
	binary := filepath.Join(t.TempDir(), "kube-proxy")
	if err := os.WriteFile(binary, shell, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, "-c", "(read never; true); true")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	stdin, err := cmd.StdinPipe() // what it waits for
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	})
	var child int
	eventually.Succeeds(t, "it has a child with its own command line", func() error {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", cmd.Process.Pid, cmd.Process.Pid))
		if err != nil {
			return err
		}
		child, err = strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			return err
		}
		if p := (kubeProxy{pid: child, dir: fmt.Sprintf("/proc/%d", child)}); !p.isKubeProxy() {
			return fmt.Errorf("process %d is %q", child, p.args)
		}
		return nil
	})
	all, err := kubeProxies()
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[int]bool)
	for _, p := range all {
		found[p.pid] = true
	}
	if !found[cmd.Process.Pid] || found[child] {
		t.Errorf("%d is kube-proxy, and %d its child; found: %v", cmd.Process.Pid, child, found)
	}
}
