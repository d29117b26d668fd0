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

// limit limits every wait: under wine, on a busy machine, a verb takes seconds.
const limit = 8 * time.Minute

// A wine is a Windows of a test's own, in a temporary folder.
type wine struct {
	*testing.T
	loader, server string
	dir            string   // has the files below
	env            []string // of each of its processes
}

// newWine returns a wine in which Go's programs run, with pointsman and its dataplane in bin.
func newWine(t *testing.T) *wine {
	if os.Getenv("POINTSMAN_WINE") == "" {
		t.Skip("it takes a minute or two, and needs wine: make test-windows runs it")
	}
	w := &wine{T: t, dir: t.TempDir()}
	w.loader, w.server = tool(t, "wine64", "/usr/lib/wine/wine64"), tool(t, "wineserver", "/usr/lib/wine/wineserver64")
	compiler := tool(t, "x86_64-w64-mingw32-gcc", "")
	for _, name := range []string{"PATH", "HOME", "LANG"} {
		w.env = append(w.env, name+"="+os.Getenv(name))
	}
	// Wine itself prints nothing, and offers to install nothing.
	w.env = append(w.env, "WINEPREFIX="+w.path("prefix"), "WINEDEBUG=-all", "WINEDLLOVERRIDES=mscoree,mshtml=")
	w.build("build", "-o", w.path("bin")+"/", "../../host/pointsman", "../../sdk/sdktest/pointsman-conformance", "../../plugins/userspace/pointsman-dataplane-userspace")
	if err := os.Mkdir(w.path("prefix"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.end)
	for _, args := range [][]string{{w.server, "-p"}, {w.loader, "wineboot", "-i"}} {
		if out, exit := w.outside(args...); exit != 0 {
			t.Fatalf("%v: exit %d\n%s", args, exit, out)
		}
	}
	shim := w.path("prefix/drive_c/windows/system32/bcryptprimitives.dll")
	if out, exit := w.outside(compiler, "-shared", "-nostartfiles", "-e", "DllMain", "-o", shim, "testdata/bcryptprimitives.c", "-ladvapi32"); exit != 0 {
		t.Fatalf("compile the shim: exit %d\n%s", exit, out)
	}
	return w
}

// tool returns a program of this machine, or skips the test.
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

// build runs a verb of go for Windows.
func (w *wine) build(verb string, args ...string) {
	w.Helper()
	cmd := exec.Command("go", append([]string{verb, "-trimpath"}, args...)...)
	cmd.Env = append(os.Environ(), "GOOS=windows", "GOARCH=amd64", "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		w.Fatalf("go %s: %v\n%s", verb, err, out)
	}
}

func (w *wine) path(name string) string { return filepath.Join(w.dir, name) }

// there returns a path of this machine as Windows writes it.
func there(path string) string { return `Z:` + strings.ReplaceAll(path, "/", `\`) }

// write replaces a file at once, as an editor does.
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

// begin starts a program of this machine with wine's environment. Its output goes to a file: wine's server would keep a
// pipe open.
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

// outside runs such a program until it ends.
func (w *wine) outside(args ...string) (out string, exit int) {
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

// run runs a program in bin, or one of wine's own, under wine.
func (w *wine) run(program string, args ...string) (out string, exit int) {
	w.Helper()
	if strings.HasPrefix(program, "pointsman") {
		program = w.path("bin/" + program + ".exe")
	}
	return w.outside(append([]string{w.loader, program}, args...)...)
}

// end ends every process under this wine.
func (w *wine) end() {
	for _, word := range []string{"-k", "-w"} { // ends all, and waits until they have ended
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		cmd, err := w.begin(ctx, "end", w.server, word)
		if err == nil {
			_ = cmd.Wait() // exits with 1 if there is none
		}
		cancel()
	}
}
