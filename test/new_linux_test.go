// SPDX-License-Identifier: Apache-2.0

package test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
	"golang.org/x/sys/unix"

	"github.com/pointsman/pointsman/sdk/ledger"
	"github.com/pointsman/pointsman/test/built"
	"github.com/pointsman/pointsman/test/eventually"
)

// An author has pointsman installed and nothing of this checkout: a folder, and a user without privileges.
type author struct {
	t    *testing.T
	dir  string
	name string // of the plugin
	bin  string // pointsman
	env  []string
	user *syscall.Credential // nil: the user of the test
}

func newAuthor(t *testing.T, name string) *author {
	t.Helper()
	dir, err := os.MkdirTemp("", "author-") // short: the path of a socket has little room
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	a := &author{t: t, dir: dir, name: name, bin: filepath.Join(dir, "usr", "bin", "pointsman"), env: os.Environ()}
	plugins := filepath.Join(dir, "usr", "libexec", "pointsman")
	if err := errors.Join(os.Chmod(dir, 0o755), os.MkdirAll(filepath.Dir(a.bin), 0o755), os.MkdirAll(plugins, 0o755),
		built.Place(filepath.Join(binaries(t), "pointsman"), a.bin), built.Place(filepath.Join(binaries(t), "pointsman-conformance"), a.bin+"-conformance"), built.Place(plugin(t), filepath.Join(plugins, userspace))); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		a.user = &syscall.Credential{Uid: 65534, Gid: 65534}
	}
	return a
}

func (a *author) folder() string { return filepath.Join(a.dir, "pointsman-dataplane-"+a.name) }

// command returns a command that runs in the plugin's folder.
func (a *author) command(ctx context.Context, words ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Dir, cmd.Env = a.folder(), a.env
	return cmd
}

// run runs a command as the test's user, and fails the test if the command fails.
func (a *author) run(words ...string) string {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(a.t.Context(), 5*long)
	defer cancel()
	out, err := a.command(ctx, words...).CombinedOutput()
	if err != nil {
		a.t.Fatalf("%v: %v\n%s", words, err, out)
	}
	return string(out)
}

// runAsUser runs a command as the user without privileges.
func (a *author) runAsUser(words ...string) (string, error) {
	ctx, cancel := context.WithTimeout(a.t.Context(), 5*long)
	defer cancel()
	cmd := a.command(ctx, words...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: a.user}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// pluginNew runs `plugin new`.
func (a *author) pluginNew(words ...string) {
	a.t.Helper()
	cmd := exec.CommandContext(a.t.Context(), a.bin, append([]string{"plugin", "new", a.name}, words...)...)
	cmd.Dir = a.dir
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "cd pointsman-dataplane-"+a.name+"\n") {
		a.t.Fatalf("plugin new: %v\n%s", err, out)
	}
}

// giveToUser makes the user without privileges the owner of the folder.
func (a *author) giveToUser() {
	a.t.Helper()
	if a.user == nil {
		return
	}
	err := filepath.WalkDir(a.folder(), func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(path, int(a.user.Uid), int(a.user.Gid)))
	})
	if err != nil {
		a.t.Fatal(err)
	}
}

// inNamespace calls f on a thread in a network namespace of its own, with a loopback device and a ledger of its own.
// Processes and sockets of f are there, too.
func inNamespace(t *testing.T, f func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, for a network namespace")
	}
	binaries(t) // here, where it may end the test
	done := make(chan error)
	go func() { // its thread is locked, and ends with it
		runtime.LockOSThread()
		err := unix.Unshare(unix.CLONE_NEWNET | unix.CLONE_NEWNS)
		if err == nil {
			err = unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, "")
		}
		if err == nil {
			err = ledger.Private()
		}
		if err == nil {
			err = exec.Command("ip", "link", "set", "lo", "up").Run()
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

// runConformance runs the conformance suite by the plugin's Makefile. flags are for pointsman-conformance.
func (a *author) runConformance(flags string) {
	a.t.Helper()
	inNamespace(a.t, func() {
		ctx, cancel := context.WithTimeout(a.t.Context(), 5*long) // other suites use the same addresses, one at a time
		defer cancel()
		out, err := a.command(ctx, "make", "conformance", "CONFORMANCE="+a.bin+"-conformance "+flags).CombinedOutput()
		if err != nil || !strings.Contains(string(out), a.name) || !strings.Contains(string(out), " 0 failed") {
			a.t.Errorf("make conformance: %v\n%s", err, out)
		}
	})
}

// addresses returns the addresses in the generated manifest.
func (a *author) addresses() (service, endpoint string) {
	a.t.Helper()
	manifest := yaml.NewDecoder(strings.NewReader(read(a.t, filepath.Join(a.folder(), "services", "web.yaml"))))
	var svc struct {
		Spec struct {
			ClusterIP string `yaml:"clusterIP"`
			Ports     []struct {
				Port       int
				TargetPort int `yaml:"targetPort"`
			}
		}
	}
	if err := manifest.Decode(&svc); err != nil {
		a.t.Fatal(err)
	}
	p := svc.Spec.Ports[0]
	return fmt.Sprintf("%s:%d", svc.Spec.ClusterIP, p.Port), fmt.Sprintf("127.0.0.1:%d", p.TargetPort)
}

// startHost runs a command that runs a host, as the user without privileges, until the test ends.
func (a *author) startHost(words ...string) {
	a.t.Helper()
	cmd := a.command(context.Background(), words...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: a.user, Setpgid: true}
	log, err := os.Create(filepath.Join(a.dir, "host.log"))
	if err != nil {
		a.t.Fatal(err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) // as Ctrl-C does
		ended := make(chan struct{})
		go func() { // ends with the host
			defer close(ended)
			_ = cmd.Wait()
		}()
		select {
		case <-ended:
		case <-time.After(long):
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
			<-ended
			a.t.Error("the host did not end after Ctrl-C")
		}
		if a.t.Failed() {
			a.t.Logf("the host's log:\n%s", read(a.t, log.Name()))
		}
	})
}

// swap starts a host as the user without privileges, and swaps from the plugin and back while callers call.
func (a *author) swap() {
	a.t.Helper()
	if out, err := a.runAsUser(a.bin, "config", "validate", "host.yaml"); err != nil {
		a.t.Fatalf("config validate: %v\n%s", err, out)
	}
	service, endpoint := a.addresses()
	backend(a.t, endpoint)
	a.startHost("make", "run")
	eventually.SucceedsWithin(a.t, long, "the plugin serves", func() error {
		_, err := ask("tcp", service)
		return err
	})
	r := newClients(a.t, service)
	if out, err := a.runAsUser("make", "swap"); err != nil {
		a.t.Fatalf("make swap: %v\n%s", err, out)
	}
	r.Done(a.t, "calls during make swap")
	out, err := a.runAsUser(a.bin, "status", "--until-well=5m", "--config", "host.yaml")
	if !regexp.MustCompile(`(?m)^mode +`+a.name+`$`).MatchString(out) || err != nil {
		a.t.Errorf("status: %v\n%s", err, out)
	}
}

// lines counts the lines of the author's files.
func (a *author) lines(pattern string) (n int) {
	found, _ := filepath.Glob(filepath.Join(a.folder(), pattern)) // the pattern is valid
	for _, path := range found {
		n += bytes.Count([]byte(read(a.t, path)), []byte("\n"))
	}
	return n
}

// TestPluginNewGo follows an author who begins with `plugin new`: the plugin builds with this sdk, conforms, and serves
// on a host without privileges, which swaps from it and back.
func TestPluginNewGo(t *testing.T) {
	t.Parallel()
	a := newAuthor(t, "acme")
	began := time.Now()
	a.pluginNew("--module", "example.org/net/acme")
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	a.env = append(a.env, "GOFLAGS=-buildvcs=false -trimpath", "GOWORK=off")
	a.run("go", "mod", "edit", "-replace=github.com/pointsman/pointsman="+root)
	a.run("make", "build")
	t.Logf("built after %s", time.Since(began).Round(time.Second))
	a.run("go", "vet", "./...")
	a.run("go", "test", "-run", "TestConforms/C00", "./...")
	if mod := a.run("go", "list", "-m"); mod != "example.org/net/acme\n" {
		t.Errorf("the module is %q", mod)
	}
	a.runConformance("--run ^C0[017]/") // sdk/examples/relay runs the whole suite
	a.giveToUser()
	a.swap()
	t.Logf("%d lines of Go; after %s all was done", a.lines("*.go"), time.Since(began).Round(time.Second))
}

// TestPluginNewPython is the same for Python. Its program is the example's except for the name, so the example
// conforms, too.
func TestPluginNewPython(t *testing.T) {
	t.Parallel()
	needsPython(t)
	a := newAuthor(t, "snake")
	began := time.Now()
	a.pluginNew("--lang", "python")
	example := read(t, "../examples/python-relay/pointsman-dataplane-pyrelay")
	if program := read(t, filepath.Join(a.folder(), "pointsman-dataplane-snake")); strings.Replace(example, `"pyrelay"`, `"snake"`, 1) != program {
		t.Error("the program differs from the example")
	}
	if n := strings.Count(example, "\n"); n > 250 {
		t.Errorf("the example has %d lines, and its README says 250", n)
	}
	a.run("make", "build")
	t.Logf("built after %s", time.Since(began).Round(time.Second))
	a.runConformance("")
	a.giveToUser()
	a.swap()
	t.Logf("%d lines of Python; after %s all was done", a.lines("pointsman-dataplane-*"), time.Since(began).Round(time.Second))
}

// TestGuideSample runs the plugin and the config that the author's guide shows, as a user without privileges: the
// plugin prints into the host's log.
func TestGuideSample(t *testing.T) {
	t.Parallel()
	a := newAuthor(t, "printer")
	config := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindStringSubmatch(read(t, "../docs/writing-a-plugin.md"))[1]
	services, bin := filepath.Join(a.folder(), "services"), filepath.Join(a.folder(), "bin")
	manifest := strings.ReplaceAll(tcpService("web", "127.0.0.80", 18080, "127.0.0.1"), "NET.", "127.0.0.")
	if err := errors.Join(built.Into(a.dir, "", "./sdk/examples/printer"), os.MkdirAll(services, 0o755), os.MkdirAll(bin, 0o755)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(
		os.WriteFile(filepath.Join(bin, "pointsman-dataplane-printer"), []byte(read(t, filepath.Join(a.dir, "printer"))), 0o755), // no link, because gives changes its owner
		os.WriteFile(filepath.Join(a.folder(), "host.yaml"), []byte(config), 0o644),
		os.WriteFile(filepath.Join(services, "web.yaml"), []byte(manifest), 0o644)); err != nil {
		t.Fatal(err)
	}
	a.giveToUser()
	a.startHost(a.bin, "run", "--config", "host.yaml")
	eventually.SucceedsWithin(t, long, "the plugin prints into the host's log", func() error {
		if log := read(t, filepath.Join(a.dir, "host.log")); !strings.Contains(log, "1 Services") || !strings.Contains(log, "127.0.0.80:18080") {
			return errors.New(log)
		}
		return nil
	})
}
