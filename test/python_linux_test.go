// SPDX-License-Identifier: Apache-2.0

package test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/test/built"
)

// needsPython skips a test if gRPC for Python is missing, or what generates its code.
func needsPython(t *testing.T) {
	t.Helper()
	if err := exec.Command("/usr/bin/python3", "-c", "import grpc, google.protobuf, cryptography").Run(); err != nil {
		t.Skip("needs gRPC for Python; on Debian: apt-get install python3-grpcio python3-protobuf python3-cryptography")
	}
	for _, program := range []string{"protoc", "grpc_python_plugin", "make"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("needs %s; on Debian: apt-get install protobuf-compiler protobuf-compiler-grpc make", program)
		}
	}
}

// pyrelay returns the Python example, with the code that protoc generates, in a folder of the test.
func pyrelay(t *testing.T) string {
	t.Helper()
	needsPython(t)
	dir := filepath.Join(t.TempDir(), "plugins")
	if err := os.CopyFS(dir, os.DirFS("../examples/python-relay")); err != nil {
		t.Fatal(err)
	}
	wire, err := filepath.Abs("../sdk/wire")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), long)
	defer cancel()
	if out, err := exec.CommandContext(ctx, "make", "-B", "-C", dir, "WIRE="+wire).CombinedOutput(); err != nil {
		t.Fatalf("make: %v: %s", err, out)
	}
	path := filepath.Join(dir, "pointsman-dataplane-pyrelay")
	if err := os.Chmod(path, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestPythonVerbs compares the verbs of the Python example with those of the Go example: the same exits, text and JSON,
// except for the name and for the reason of a refusal.
func TestPythonVerbs(t *testing.T) {
	t.Parallel()
	python, dir := pyrelay(t), t.TempDir()
	if err := built.Into(dir, "", "./sdk/examples/relay"); err != nil {
		t.Fatal(err)
	}
	answer := func(program string, words ...string) (string, int) {
		ctx, cancel := context.WithTimeout(t.Context(), long)
		defer cancel()
		cmd := exec.CommandContext(ctx, program, words...)
		out, err := cmd.Output()
		if _, ran := errors.AsType[*exec.ExitError](err); err != nil && !ran {
			t.Fatalf("%v: %v", words, err)
		}
		text := strings.ReplaceAll(string(out), "pyrelay", "relay")
		text = regexp.MustCompile(`built from [^,]*, `).ReplaceAllString(text, "")
		return regexp.MustCompile(`"why": ".*"`).ReplaceAllString(text, `"why"`), cmd.ProcessState.ExitCode()
	}
	for _, words := range []string{
		"describe", "describe -o json", "check", "check -o json", `check --options {"a":1}`, `check -o json --options {"a":1}`,
		"cleanup", "cleanup -o json", "cleanup --dry-run --kube-proxy -o json", "--version",
		"", "nope", "describe more", "describe -o xml", "check --nope", "--listen tcp://127.0.0.1:1",
	} {
		want, code := answer(filepath.Join(dir, "relay"), strings.Fields(words)...)
		if got, exit := answer(python, strings.Fields(words)...); got != want || exit != code {
			t.Errorf("%q: in Python\n%s(exit %d), in Go\n%s(exit %d)", words, got, exit, want, code)
		}
	}
}
