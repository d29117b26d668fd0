// SPDX-License-Identifier: Apache-2.0

package helper

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestMain lets this binary be a helper, and a plugin that starts one.
func TestMain(m *testing.M) {
	switch os.Getenv("HELPER_TEST") {
	case "helper":
		fmt.Println("serves")
		time.Sleep(time.Hour)
	case "deaf": // with a child, and SIGTERM ends neither
		signal.Ignore(syscall.SIGTERM)
		child := exec.Command(os.Args[0])
		child.Env = []string{"HELPER_TEST=helper"} // no token: it is known by its session
		if err := child.Start(); err != nil {
			os.Exit(1)
		}
		fmt.Println(child.Process.Pid)
		time.Sleep(time.Hour)
	case "plugin":
		p, err := Start(context.Background(), os.Args[1], command("daemon", "helper"))
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(p.PID())
		time.Sleep(time.Hour)
	}
	os.Exit(m.Run())
}

// deadline is for what takes no time on a machine that is not busy.
const deadline = 30 * time.Second

// command is this binary in a part.
func command(name, part string) Command {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return Command{Name: name, Path: self, Env: []string{"HELPER_TEST=" + part}}
}

// begin starts a helper that does not outlive the test.
func begin(t *testing.T, dir string, c Command) *Process {
	t.Helper()
	p, err := Start(t.Context(), dir, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.End(context.Background(), 0) })
	return p
}

func waitFor(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(deadline); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after %s still not: %s", deadline, what)
		}
	}
}

func closed(c <-chan struct{}) func() bool {
	return func() bool {
		select {
		case <-c:
			return true
		default:
			return false
		}
	}
}

// TestAdopted: what a plugin that was killed has started runs on, and its successor finds it.
func TestAdopted(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "helpers")
	plugin := exec.Command(os.Args[0], dir)
	plugin.Env = []string{"HELPER_TEST=plugin"}
	out, err := plugin.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := plugin.Start(); err != nil {
		t.Fatal(err)
	}
	line, _ := bufio.NewReader(out).ReadString('\n')
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatalf("the plugin said %q", line)
	}
	_ = plugin.Process.Kill()
	_ = plugin.Wait()

	p, err := Find(dir, "daemon")
	if err != nil {
		t.Fatal(err)
	}
	if p.PID() != pid || !p.Alive() {
		t.Errorf("found process %d, alive: %t; want %d", p.PID(), p.Alive(), pid)
	}
	if all, err := All(dir); len(all) != 1 || err != nil || !all[0].Runs() || all[0].Memory() == 0 {
		t.Errorf("declared: %v, %v", all, err)
	}
	if _, err := Start(t.Context(), dir, command("daemon", "helper")); err == nil || !strings.Contains(err.Error(), "runs already") {
		t.Errorf("a second of one name: %v", err)
	}
	if err := p.End(t.Context(), deadline); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "Done of one that was adopted", closed(p.Done()))
	if _, err := Find(dir, "daemon"); !errors.Is(err, ErrNone) || errors.Is(err, os.ErrProcessDone) {
		t.Errorf("after its end: %v", err)
	}
}

// TestKilledWhileStarting: a plugin that is killed between the start of its helper and the
// record of the pid has declared it nevertheless.
func TestKilledWhileStarting(t *testing.T) {
	dir := t.TempDir()
	r := Record{Name: "daemon", Boot: bootID(), Path: os.Args[0], Token: "of-this-test"}
	if err := write(dir, r); err != nil {
		t.Fatal(err)
	}
	if _, err := Find(dir, "daemon"); !errors.Is(err, ErrNone) {
		t.Errorf("before there is a process: %v", err)
	}
	proc, err := command("daemon", "helper").execute(dir, r.Token)
	if err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = proc.Wait() }()
	defer func() { _ = proc.Kill() }()
	if all, err := All(dir); len(all) != 1 || err != nil || !all[0].Has(proc.Pid) {
		t.Errorf("declared: %v, %v; want process %d", all, err, proc.Pid)
	}
	p, err := Find(dir, "daemon")
	if err != nil {
		t.Fatal(err)
	}
	if p.PID() != proc.Pid {
		t.Errorf("found process %d, want %d", p.PID(), proc.Pid)
	}
	if err := p.End(t.Context(), deadline); err != nil {
		t.Error(err)
	}
}

// TestAnotherProcess: one that has the pid of a helper, and is another, is not found, and
// gets no signal.
func TestAnotherProcess(t *testing.T) {
	dir := t.TempDir()
	p := begin(t, dir, command("daemon", "helper"))
	good := p.Record()
	for name, r := range map[string]Record{
		"another start":   {PID: good.PID, Start: good.Start + 1, Boot: good.Boot},
		"another boot":    {PID: good.PID, Start: good.Start, Boot: "another"},
		"no start":        {PID: good.PID, Boot: good.Boot},
		"every process":   {PID: -1, Start: good.Start, Boot: good.Boot},
		"the first":       {PID: 1, Start: good.Start, Boot: good.Boot},
		"a process group": {PID: -good.PID, Start: good.Start, Boot: good.Boot},
		"none":            {Boot: good.Boot},
	} {
		r.Name, r.Path = "other", good.Path
		if err := write(dir, r); err != nil {
			t.Fatal(err)
		}
		if _, err := Find(dir, "other"); !errors.Is(err, ErrNone) {
			t.Errorf("%s: found, %v", name, err)
		}
		other := newProcess(dir, r, p.proc)
		if err := other.Signal(os.Kill); !errors.Is(err, os.ErrProcessDone) {
			t.Errorf("%s: signal: %v", name, err)
		}
	}
	if !p.Alive() {
		t.Error("it was ended")
	}
}

// TestNone: a Process that nothing has made has ended, and sends no signal anywhere.
func TestNone(t *testing.T) {
	var p Process
	for _, sig := range []os.Signal{os.Kill, syscall.SIGTERM, syscall.Signal(0)} {
		if err := p.Signal(sig); !errors.Is(err, os.ErrProcessDone) {
			t.Errorf("signal %s: %v", sig, err)
		}
	}
	if err := p.End(t.Context(), 0); err != nil || p.Alive() || !closed(p.Done())() || p.PID() != 0 {
		t.Errorf("%v, alive: %t, pid %d", err, p.Alive(), p.PID())
	}
	p.Release()
}

// TestEndWithItsChildren: one that ignores SIGTERM is ended after the grace, with what it
// started.
func TestEndWithItsChildren(t *testing.T) {
	dir := t.TempDir()
	p := begin(t, dir, command("deaf", "deaf"))
	var child int
	waitFor(t, "a child", func() bool {
		text, _ := os.ReadFile(logFile(dir, "deaf"))
		n, err := fmt.Sscan(string(text), &child)
		return n == 1 && err == nil
	})
	if !p.Record().Has(child) {
		t.Errorf("process %d is not known as the helper's", child)
	}
	if err := p.End(t.Context(), 50*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the child's end", func() bool { _, err := readStat(child); return errors.Is(err, os.ErrProcessDone) })
	if left, _ := filepath.Glob(filepath.Join(dir, "*.json")); len(left) > 0 {
		t.Errorf("%v were left", left)
	}
}

// TestDies: the end of a helper is seen by the process that started it and by one that found
// it; its record stays, until another one is started.
func TestDies(t *testing.T) {
	dir := t.TempDir()
	p := begin(t, dir, command("daemon", "helper"))
	found, err := Find(dir, "daemon")
	if err != nil {
		t.Fatal(err)
	}
	if err := found.Signal(os.Kill); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "Done", closed(p.Done()))
	waitFor(t, "Done of the one that was found", closed(found.Done()))
	if _, err := Find(dir, "daemon"); !errors.Is(err, ErrNone) || !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("found: %v", err)
	}
	if all, err := All(dir); len(all) != 1 || err != nil || all[0].Runs() {
		t.Errorf("declared: %v, %v; want one that has ended", all, err)
	}
	if another := begin(t, dir, command("daemon", "helper")); another.PID() == p.PID() || !another.Alive() {
		t.Errorf("another: %s", another)
	}
	if err := p.End(t.Context(), 0); err != nil {
		t.Error(err)
	}
	if _, err := Find(dir, "daemon"); err != nil {
		t.Errorf("the end of a former one took the record of the present one: %v", err)
	}
}

// TestReleased: what is no longer watched runs on.
func TestReleased(t *testing.T) {
	dir := t.TempDir()
	p := begin(t, dir, command("daemon", "helper"))
	found, err := Find(dir, "daemon")
	if err != nil {
		t.Fatal(err)
	}
	found.Release()
	found.Release()
	if !p.Alive() || !found.Alive() || closed(found.Done())() {
		t.Error("it ended")
	}
}

// TestEnvironment: a helper is known to the host by what its plugin is known by, whatever
// environment it is given, and by its token.
func TestEnvironment(t *testing.T) {
	t.Setenv(hostKey, `{"launch":"x"}`)
	c := Command{Env: []string{"A=b", tokenKey + "=forged", hostKey + "=forged"}}
	if got, want := c.environ("new"), []string{"A=b", hostKey + `={"launch":"x"}`, tokenKey + "=new"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if inherits := (Command{}).environ("new"); !slices.ContainsFunc(inherits, func(v string) bool { return strings.HasPrefix(v, "PATH=") }) {
		t.Errorf("without one of its own: %q", inherits)
	}
}

// TestRefused: each says what is wrong, and leaves no record.
func TestRefused(t *testing.T) {
	dir := t.TempDir()
	for want, c := range map[string]Command{
		"lower-case letters":        {Name: "../x", Path: "/bin/true"},
		"not absolute":              {Name: "x", Path: "true"},
		"no such file or directory": {Name: "x", Path: "/nowhere/true"},
	} {
		if _, err := Start(t.Context(), dir, c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v; want %q", c, err, want)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*.json")); len(left) > 0 {
		t.Errorf("%v were left", left)
	}
	open := filepath.Join(dir, "open")
	if err := errors.Join(os.Mkdir(open, 0o700), os.Chmod(open, 0o777)); err != nil {
		t.Fatal(err)
	}
	if _, err := Start(t.Context(), open, command("x", "helper")); err == nil || !strings.Contains(err.Error(), "chmod") {
		t.Errorf("in a folder that everyone may write to: %v", err)
	}
}

// TestLog: what a helper prints begins anew with each, and stays small.
func TestLog(t *testing.T) {
	dir := t.TempDir()
	file := logFile(dir, "daemon")
	if err := os.WriteFile(file, []byte("of a former one\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	begin(t, dir, command("daemon", "helper"))
	waitFor(t, "its output", func() bool { text, _ := os.ReadFile(file); return string(text) == "serves\n" })

	large := slices.Concat([]byte("begin"), make([]byte, maxLog-3), []byte("end"))
	if err := os.WriteFile(file, large, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := trimLog(file); err != nil {
		t.Fatal(err)
	}
	now, _ := os.ReadFile(file)
	old, _ := os.ReadFile(file + ".old")
	if len(now) != 0 || len(old) != maxLog || !strings.HasSuffix(string(old), "end") {
		t.Errorf("%d bytes, and %d of the old ones", len(now), len(old))
	}
}
