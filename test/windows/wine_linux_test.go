// SPDX-License-Identifier: Apache-2.0

package windows

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// limit limits every wait. It is generous, because a verb takes seconds under wine on a busy machine.
const limit = 8 * time.Minute

// A wine is a temporary folder with a wine prefix, in which programs for Windows run.
type wine struct {
	*testing.T
	loader, server string   // wine64 and wineserver
	dir            string   // the folder
	env            []string // the environment of each process
}

// newWine creates a wine prefix in which programs in Go can run, and builds pointsman and its dataplane into bin.
func newWine(t *testing.T) *wine {
	if os.Getenv("POINTSMAN_WINE") == "" {
		t.Skip("needs wine, and takes a minute or two: make test-windows runs it")
	}
	w := &wine{T: t, dir: t.TempDir()}
	w.loader, w.server = tool(t, "wine64", "/usr/lib/wine/wine64"), tool(t, "wineserver", "/usr/lib/wine/wineserver64")
	compiler := tool(t, "x86_64-w64-mingw32-gcc", "")
	for _, name := range []string{"PATH", "HOME", "LANG"} {
		w.env = append(w.env, name+"="+os.Getenv(name))
	}
	// Disable wine's own output, and its offers to install Mono and Gecko.
	w.env = append(w.env, "WINEPREFIX="+w.path("prefix"), "WINEDEBUG=-all", "WINEDLLOVERRIDES=mscoree,mshtml=")
	w.build("build", "-o", w.path("bin")+"/", "../../host/pointsman", "../../sdk/sdktest/pointsman-conformance", "../../plugins/userspace/pointsman-dataplane-userspace")
	if err := os.Mkdir(w.path("prefix"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.end)
	for _, args := range [][]string{{w.server, "-p"}, {w.loader, "wineboot", "-i"}} {
		if out, exit := w.runNative(args...); exit != 0 {
			t.Fatalf("%v: exit %d\n%s", args, exit, out)
		}
	}
	shim := w.path("prefix/drive_c/windows/system32/bcryptprimitives.dll")
	if out, exit := w.runNative(compiler, "-shared", "-nostartfiles", "-e", "DllMain", "-o", shim, "testdata/bcryptprimitives.c", "-ladvapi32"); exit != 0 {
		t.Fatalf("compile the shim: exit %d\n%s", exit, out)
	}
	return w
}

// tool returns the path of a program of this machine, or skips the test.
func tool(t *testing.T, name, elsewhere string) string {
	path, err := exec.LookPath(name)
	if err != nil && elsewhere != "" {
		path, err = exec.LookPath(elsewhere)
	}
	if err != nil {
		t.Skipf("there is no %s; on Debian: apt-get install wine64 gcc-mingw-w64-x86-64", name)
	}
	return path
}

// build runs a go command with Windows as target.
func (w *wine) build(verb string, args ...string) {
	w.Helper()
	cmd := exec.Command("go", append([]string{verb, "-trimpath"}, args...)...)
	cmd.Env = append(os.Environ(), "GOOS=windows", "GOARCH=amd64", "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		w.Fatalf("go %s: %v\n%s", verb, err, out)
	}
}

func (w *wine) path(name string) string { return filepath.Join(w.dir, name) }

// windowsPath returns the path by which programs under wine open a file of this machine.
func windowsPath(path string) string { return `Z:` + strings.ReplaceAll(path, "/", `\`) }

// write replaces a file atomically, by a rename.
func (w *wine) write(name, text string) {
	w.Helper()
	path := w.path(name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(w.path("written"), []byte(text), 0o644), os.Rename(w.path("written"), path)); err != nil {
		w.Fatal(err)
	}
}

func (w *wine) read(name string) string {
	text, err := os.ReadFile(w.path(name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		w.Error(err)
	}
	return string(text)
}

// begin starts a program of this machine in wine's environment. Its output goes to a file, since wine's server, which
// inherits it, would keep a pipe open.
func (w *wine) begin(ctx context.Context, log string, args ...string) (*exec.Cmd, error) {
	out, err := os.Create(w.path(log))
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env, cmd.Stdout, cmd.Stderr = w.env, out, out
	return cmd, cmd.Start()
}

// runNative runs a program of this machine in wine's environment until it ends.
func (w *wine) runNative(args ...string) (out string, exit int) {
	w.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd, err := w.begin(ctx, "out", args...)
	if err != nil {
		w.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		if _, ran := errors.AsType[*exec.ExitError](err); !ran {
			w.Fatalf("%v: %v", args, err)
		}
	}
	return w.read("out"), cmd.ProcessState.ExitCode()
}

// run runs a program under wine until it ends: one in bin, or one of wine's own.
func (w *wine) run(program string, args ...string) (out string, exit int) {
	w.Helper()
	if strings.HasPrefix(program, "pointsman") {
		program = w.path("bin/" + program + ".exe")
	}
	return w.runNative(append([]string{w.loader, program}, args...)...)
}

// end ends all processes of this wine.
func (w *wine) end() {
	for _, flag := range []string{"-k", "-w"} { // kill all processes, then wait for their end
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		cmd, err := w.begin(ctx, "end", w.server, flag)
		if err == nil {
			_ = cmd.Wait() // exits with 1 if no process runs
		}
		cancel()
	}
}
