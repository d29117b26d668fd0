// SPDX-License-Identifier: Apache-2.0

package test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pointsman/pointsman/sdk/ledger"
	"github.com/pointsman/pointsman/test/built"
	"github.com/pointsman/pointsman/test/eventually"
)

// An author has pointsman installed and nothing of this checkout.
type author struct {
	*testing.T
	bin    string // pointsman
	folder string // of the plugin, which has the author's files
	name   string // of the plugin
	env    []string
}

func newAuthor(t *testing.T, name string) *author {
	t.Helper()
	dir, err := os.MkdirTemp("", "author-") // short: the path of a socket has little room
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	a := &author{t, filepath.Join(dir, "usr/bin/pointsman"), filepath.Join(dir, "pointsman-dataplane-"+name), name, os.Environ()}
	plugins := filepath.Join(dir, "usr/libexec/pointsman")
	if err := errors.Join(os.MkdirAll(filepath.Dir(a.bin), 0o755), os.MkdirAll(plugins, 0o755),
		built.Place(filepath.Join(binaries(t), "pointsman"), a.bin), built.Place(filepath.Join(binaries(t), "pointsman-conformance"), a.bin+"-conformance"), built.Place(plugin(t), filepath.Join(plugins, userspace))); err != nil {
		t.Fatal(err)
	}
	return a
}

// try runs a command in the plugin's folder.
func (a *author) try(words ...string) (string, error) {
	ctx, cancel := context.WithTimeout(a.Context(), 5*long)
	defer cancel()
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Dir, cmd.Env = a.folder, a.env
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// run runs a command that must succeed.
func (a *author) run(words ...string) string {
	a.Helper()
	out, err := a.try(words...)
	if err != nil {
		a.Fatalf("%v: %v\n%s", words, err, out)
	}
	return out
}

// pluginNew runs `plugin new`.
func (a *author) pluginNew(words ...string) {
	a.Helper()
	cmd := exec.CommandContext(a.Context(), a.bin, append([]string{"plugin", "new", a.name}, words...)...)
	cmd.Dir = filepath.Dir(a.folder)
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "cd pointsman-dataplane-"+a.name+"\n") {
		a.Fatalf("plugin new: %v\n%s", err, out)
	}
}

// startHost runs a command that runs a host, until the test ends. It returns the host's log.
func (a *author) startHost(words ...string) (log string) {
	a.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Dir, cmd.Env, cmd.SysProcAttr = a.folder, a.env, &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel, cmd.WaitDelay = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }, long // as Ctrl-C does
	file, err := os.Create(filepath.Join(filepath.Dir(a.folder), "host.log"))
	if err != nil {
		a.Fatal(err)
	}
	defer file.Close()
	cmd.Stdout, cmd.Stderr = file, file
	if err := cmd.Start(); err != nil {
		a.Fatal(err)
	}
	a.Cleanup(func() {
		cancel()
		if _ = cmd.Wait(); cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL {
			a.Error("the host did not end after Ctrl-C")
		}
		if a.Failed() {
			a.Logf("the host's log:\n%s", read(a.T, file.Name()))
		}
	})
	return file.Name()
}

// swap starts a host, and swaps from the plugin and back while callers call.
func (a *author) swap() {
	a.Helper()
	a.run(a.bin, "config", "validate", "host.yaml")
	m := regexp.MustCompile(`(?s)clusterIP: (\S+).* port: (\d+), targetPort: (\d+)`).FindStringSubmatch(read(a.T, filepath.Join(a.folder, "services/web.yaml")))
	service := m[1] + ":" + m[2]
	backend(a.T, "127.0.0.1:"+m[3])
	a.startHost("make", "run")
	eventually.Succeeds(a, "the plugin serves", func() error {
		_, err := ask(service)
		return err
	})
	r := newLoad(a.T, service, 0)
	a.run("make", "swap")
	r.Done(a.T, "calls during make swap")
	if out := a.run(a.bin, "status", "--until-well=5m", "--config", "host.yaml"); !regexp.MustCompile(`(?m)^mode +` + a.name + `$`).MatchString(out) {
		a.Errorf("status says\n%s", out)
	}
}

// runConformance runs the conformance suite by the plugin's Makefile, with these flags, in a network namespace.
func (a *author) runConformance(flags string) {
	a.Helper()
	inNamespace(a.T, func() {
		out, err := a.try("make", "conformance", "CONFORMANCE="+a.bin+"-conformance "+flags)
		if err != nil || !strings.Contains(out, a.name) || !strings.Contains(out, " 0 failed") {
			a.Errorf("make conformance: %v\n%s", err, out)
		}
	})
}

// inNamespace calls f on a thread in a network namespace of its own, with a loopback device and a ledger of its own.
// Processes and sockets of f are there, too.
func inNamespace(t *testing.T, f func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, for a network namespace")
	}
	done := make(chan error)
	go func() { // its thread is locked, and ends with it
		runtime.LockOSThread()
		err := unix.Unshare(unix.CLONE_NEWNET | unix.CLONE_NEWNS)
		if err == nil {
			err = errors.Join(unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""), ledger.Private(), exec.Command("ip", "link", "set", "lo", "up").Run())
		}
		if err == nil {
			f()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatalf("a network namespace: %v", err)
	}
}

// TestPluginNewGo follows an author who begins with `plugin new`: the plugin builds with this sdk, serves on a host,
// which swaps from it and back, and conforms.
func TestPluginNewGo(t *testing.T) {
	t.Parallel()
	a := newAuthor(t, "acme")
	a.pluginNew("--module", "example.org/net/acme")
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	a.env = append(a.env, "GOFLAGS=-buildvcs=false -trimpath", "GOWORK=off")
	a.run("go", "mod", "edit", "-replace=github.com/pointsman/pointsman="+root)
	a.run("make", "build")
	a.run("go", "vet", "./...")
	a.run("go", "test", "-run", "TestConforms/C00", "./...")
	if mod := a.run("go", "list", "-m"); mod != "example.org/net/acme\n" {
		t.Errorf("the module is %q", mod)
	}
	a.swap()
	a.runConformance("--run ^C0[017]/") // sdk/examples/relay runs the whole suite
}

// TestPluginNewPython is the same for Python.
func TestPluginNewPython(t *testing.T) {
	t.Parallel()
	if err := exec.Command("/usr/bin/python3", "-c", "import grpc, google.protobuf, cryptography").Run(); err != nil {
		t.Skip("needs gRPC for Python; on Debian: apt-get install python3-grpcio python3-protobuf python3-cryptography")
	}
	for _, program := range []string{"protoc", "grpc_python_plugin", "make"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("needs %s; on Debian: apt-get install protobuf-compiler protobuf-compiler-grpc make", program)
		}
	}
	a := newAuthor(t, "snake")
	a.pluginNew("--lang", "python")
	a.run("make", "build")
	for words, want := range map[string]string{"describe": "snake", "check": `"runs": true`, "cleanup": ""} {
		if out := a.run("./pointsman-dataplane-snake", words); !strings.Contains(out, want) {
			t.Errorf("%s says %q, want %q", words, out, want)
		}
	}
	a.swap()
	a.runConformance("")
}

// TestGuideSample runs the plugin and the config that the author's guide shows: the plugin prints into the host's log.
func TestGuideSample(t *testing.T) {
	t.Parallel()
	a := newAuthor(t, "printer")
	config := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindStringSubmatch(read(t, "../docs/writing-a-plugin.md"))[1]
	services, bin := filepath.Join(a.folder, "services"), filepath.Join(a.folder, "bin")
	manifest := strings.ReplaceAll(tcpService("web", "127.0.0.80", 18080, "127.0.0.1"), "NET.", "127.0.0.")
	if err := errors.Join(os.MkdirAll(services, 0o755), built.Into(bin, "", "./sdk/examples/printer"),
		os.Rename(filepath.Join(bin, "printer"), filepath.Join(bin, "pointsman-dataplane-printer")),
		os.WriteFile(filepath.Join(a.folder, "host.yaml"), []byte(config), 0o644),
		os.WriteFile(filepath.Join(services, "web.yaml"), []byte(manifest), 0o644)); err != nil {
		t.Fatal(err)
	}
	log := a.startHost(a.bin, "run", "--config", "host.yaml")
	eventually.Succeeds(t, "the plugin prints into the host's log", func() error {
		if log := read(t, log); !strings.Contains(log, "1 Services") || !strings.Contains(log, "127.0.0.80:18080") {
			return fmt.Errorf("the log is\n%s", log)
		}
		return nil
	})
}
