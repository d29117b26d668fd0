// SPDX-License-Identifier: Apache-2.0

package nftnl

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// TestEndOfOneCall: if a context ends at the same time as the call that uses it, the next call, with another context,
// is not interrupted.
func TestEndOfOneCall(t *testing.T) {
	c, err := Dial()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if _, err := c.Generation(t.Context()); errors.Is(err, os.ErrPermission) {
		t.Skip("needs root: ", err)
	}
	for range 5000 {
		ctx, cancel := context.WithCancel(t.Context())
		if err := c.within(ctx, func() error { cancel(); return nil }); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Generation(t.Context()); err != nil {
			t.Fatalf("the next call: %v", err)
		}
	}
}

// In a user namespace, where buffers cannot be made larger than the machine allows, a Conn reads and writes.
func TestKernelInUserNamespace(t *testing.T) {
	if os.Getenv("POINTSMAN_TEST_USER_NAMESPACE") == "" {
		me, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), me, "-test.run=^TestKernelInUserNamespace$", "-test.v")
		cmd.Env = append(os.Environ(), "POINTSMAN_TEST_USER_NAMESPACE=1", "POINTSMAN_TEST_NAMESPACE=") // so that netns.Main makes another one
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
			UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
		}
		out, err := cmd.CombinedOutput()
		if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
			t.Skip("needs user namespaces: ", err)
		}
		if err != nil {
			t.Errorf("in a user namespace: %v\n%s", err, out)
		}
		return
	}
	c, err := Dial()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	before, err := c.Generation(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b := NewBatch(IPv4, "pointsman")
	b.NewTable(0)
	send(t, c, b)
	if after, err := c.Generation(t.Context()); err != nil || after == before {
		t.Errorf("the generation was %d, and after a batch it is %d: %v", before, after, err)
	}
}
