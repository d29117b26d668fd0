// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/statefile"
)

// A node has a ledger and a file in place of a kernel parameter.
type node struct {
	*testing.T
	dir, path string
}

func newNode(t *testing.T, value string) node {
	t.Helper()
	n := node{t, t.TempDir(), filepath.Join(t.TempDir(), "route_localnet")}
	n.set(value)
	return n
}

// open opens the ledger as another process would.
func (n node) open() *Ledger {
	n.Helper()
	l, err := Open(filepath.Join(n.dir, "ledger"))
	if err != nil {
		n.Fatal(err)
	}
	return l
}

func (n node) set(value string) {
	n.Helper()
	if err := os.WriteFile(n.path, []byte(value+"\n"), 0o600); err != nil {
		n.Fatal(err)
	}
}

func (n node) want(value string) {
	n.Helper()
	if got, err := readParameter(n.path); err != nil || got != value {
		n.Fatalf("the parameter is %q, error %v; want %q", got, err, value)
	}
}

func (n node) take(holder, value string) {
	n.Helper()
	if err := n.open().Take(holder, n.path, value); err != nil {
		n.Fatal(err)
	}
}

func (n node) release(holder string, given int) {
	n.Helper()
	got, err := n.open().Release(holder)
	if err != nil || len(got) != given {
		n.Fatalf("release %s gave back %q, error %v; want %d", holder, got, err, given)
	}
}

func (n node) wantEmpty() {
	n.Helper()
	if left, _ := filepath.Glob(filepath.Join(n.dir, "ledger", "*.json")); len(left) > 0 {
		n.Fatalf("the ledger is not empty: %q", left)
	}
}

// TestParameters follows the value of a parameter. A step is "HOLDER=VALUE" or "HOLDER>=LEAST" for what a holder takes,
// "-HOLDER" for its release, and a value alone for what another program sets. "!" marks a release that reports the
// previous value as restored.
func TestParameters(t *testing.T) {
	for name, c := range map[string]struct{ before, steps, want string }{
		"the last holder restores the value":       {"0", "a=1 a=1 b=1 -a -b -b", "1 1 1 1 0! 0"},
		"another program's value stays":            {"0", "a=1 2 -a", "1 2 2"},
		"another program's value is taken again":   {"0", "a=1 2 a=1 -a", "1 2 1 0!"},
		"the value of the remaining holder":        {"60", "a=100 b=200 -b -a", "100 200 100 60!"},
		"the value was right already":              {"1", "a=1 -a", "1 1"},
		"a limit that was high enough":             {"262144", "a>=131072 -a", "262144 262144"},
		"a limit is raised and restored":           {"65536", "a>=131072 a>=131072 -a", "131072 131072 65536!"},
		"a limit in a swap":                        {"65536", "old>=131072 new>=131072 -old -new", "131072 131072 131072 65536!"},
		"a limit in a swap to a lower one":         {"65536", "old>=262144 new>=131072 -old -new", "262144 262144 262144 65536!"},
		"a limit in a swap, and it is high enough": {"262144", "old>=131072 new>=131072 -old -new", "262144 262144 262144 262144"},
		"a limit that another program raises":      {"65536", "a>=131072 262144 a>=131072 b>=131072 -a -b", "131072 262144 262144 262144 262144 262144"},
		"a limit that is raised while it is held":  {"65536", "a>=131072 262144 -a", "131072 262144 262144"},
		"a limit that another program lowers":      {"262144", "a>=131072 65536 b>=131072 -a -b", "262144 65536 131072 131072 65536!"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, c.before)
			var got []string
			for _, step := range strings.Fields(c.steps) {
				holder, value, takes := strings.Cut(step, "=")
				var restored []string
				var err error
				switch {
				case strings.HasPrefix(step, "-"):
					restored, err = n.open().Release(step[1:])
				case !takes:
					n.set(step)
				case strings.HasSuffix(holder, ">"):
					holder = strings.TrimSuffix(holder, ">")
					least, _ := strconv.ParseUint(value, 10, 64)
					err = n.open().TakeFloor(holder, n.path, least)
				default:
					err = n.open().Take(holder, n.path, value)
				}
				if err != nil {
					t.Fatalf("%s: %v", step, err)
				}
				current, err := readParameter(n.path)
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, current+strings.Repeat("!", len(restored)))
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("%s: %v, want %s", c.steps, got, c.want)
			}
			n.wantEmpty()
		})
	}
}

// If a value cannot be written, its holder keeps the value that it holds.
func TestTakeFails(t *testing.T) {
	n := newNode(t, "0")
	n.take("iptables", "1")
	program, err := os.Executable()
	if err == nil {
		err = errors.Join(os.Remove(n.path), os.Symlink(program, n.path)) // a program that runs cannot be written
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := n.open().Take("iptables", n.path, "2"); !errors.Is(err, unix.ETXTBSY) {
		t.Fatalf("took a parameter that cannot be written: %v", err)
	}
	if err := os.Remove(n.path); err != nil {
		t.Fatal(err)
	}
	n.set("1")
	n.release("iptables", 1)
	n.want("0")
	n.wantEmpty()
}

func TestHeld(t *testing.T) {
	n := newNode(t, "0")
	n.take("iptables", "1")
	held, err := n.open().Held("iptables")
	if err != nil || len(held) != 1 || !strings.HasSuffix(held[0], "back to 0") {
		t.Fatalf("held %q, error %v", held, err)
	}
	n.want("1")
}

func TestParameterIsMissing(t *testing.T) {
	n := newNode(t, "0")
	n.take("ipvs", "1")
	if err := os.Remove(n.path); err != nil {
		t.Fatal(err)
	}
	n.release("ipvs", 0)
	n.wantEmpty()
	if err := n.open().Take("ipvs", n.path, "1"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("took a parameter that does not exist: %v", err)
	}
	n.wantEmpty()
}

func TestDamagedLedger(t *testing.T) {
	n := newNode(t, "0")
	n.take("iptables", "1")
	if err := os.WriteFile(n.open().file(".json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := n.open().Take("ipvs", n.path, "2"); err == nil || !strings.Contains(err.Error(), "read ledger") {
		t.Errorf("error %v does not say that the ledger cannot be read", err)
	}
	n.want("1")
}

// A tool that a writer started keeps the lock until it ends.
func TestToolKeepsLock(t *testing.T) {
	n := newNode(t, "0")
	lock, err := n.open().TryLock("iptables")
	if err != nil {
		t.Fatal(err)
	}
	tool := exec.CommandContext(t.Context(), "cat")
	tool.ExtraFiles = []*os.File{lock.File()}
	input, err := tool.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := tool.Start(); err != nil {
		t.Fatal(err)
	}
	if err := lock.Unlock(); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := n.open().Lock(short, "iptables"); !errors.As(err, new(*sdk.Busy)) || !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("while the tool runs: %v", err)
	}
	if err := errors.Join(input.Close(), tool.Wait()); err != nil {
		t.Fatal(err)
	}
	long, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	next, err := n.open().Lock(long, "iptables")
	if err != nil {
		t.Fatalf("after the tool is done: %v", err)
	}
	_ = next.Unlock()
}

// TestKernelNamespaces: a network namespace does not have the name of another one, which may have had the same inode.
func TestKernelNamespaces(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: it makes network namespaces")
	}
	names := make(map[string]bool)
	for range 3 {
		done := make(chan error)
		go func() { // its thread ends with it, and the namespace with that
			runtime.LockOSThread()
			err := unix.Unshare(unix.CLONE_NEWNET)
			if err == nil {
				var name string
				name, err = namespace()
				names[name] = true
			}
			done <- err
		}()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	for name := range names {
		if strings.HasPrefix(name, "net-inode-") {
			t.Skip("needs Linux 5.14: the kernel has no other name for a namespace")
		}
	}
	if len(names) != 3 {
		t.Errorf("three namespaces have the names %v", names)
	}
}

// A Busy names the process that holds the lock, as the kernel lists it, with its program.
func TestBusyNamesHolder(t *testing.T) {
	n := newNode(t, "0")
	lock, err := n.open().TryLock("iptables")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(n.open().file("-iptables.lock"), []byte("1\n"), 0o600); err != nil { // the content of the file does not matter
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	want := sdk.Busy{Mode: "iptables", PID: os.Getpid(), Program: filepath.Base(self), Host: os.Getppid()}
	var busy *sdk.Busy
	_, err = n.open().TryLock("iptables")
	if !errors.As(err, &busy) || *busy != want {
		t.Errorf("the holder is %+v, by %v; want %+v", busy, err, want)
	}
	other, err := n.open().TryLock("ipvs")
	if err != nil {
		t.Fatalf("another mode is locked out: %v", err)
	}
	if err := errors.Join(lock.Unlock(), other.Unlock()); err != nil {
		t.Error(err)
	}
}

// The files of locks keep their names, by which plugins of different versions exclude each other.
func TestLockFiles(t *testing.T) {
	l := newNode(t, "0").open()
	err := l.edit(func(settings) error {
		_, err := statefile.TryLock(l.file(".lock"))
		return err
	})
	if !errors.Is(err, statefile.ErrLocked) {
		t.Errorf("while the settings are edited, their lock: %v", err)
	}
	lock, err := l.TryLock("iptables")
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Unlock()
	if _, err := statefile.TryLock(l.file("-iptables.lock")); !errors.Is(err, statefile.ErrLocked) {
		t.Errorf("while a mode has its lock: %v", err)
	}
}

func TestFlockOn(t *testing.T) {
	const locks = `1: FLOCK  ADVISORY  WRITE 4242 00:1a:1234 0 EOF
1: -> FLOCK  ADVISORY  WRITE 4243 00:1a:1234 0 EOF
2: POSIX  ADVISORY  WRITE 7 00:1a:77 0 EOF
3: FLOCK  ADVISORY  WRITE 8 00:1b:88 0 EOF
4: FLOCK  ADVISORY  WRITE 9 00:1a:99 0 EOF
5: FLOCK  ADVISORY  WRITE 10 00:1b:99 0 EOF
6: FLOCK  ADVISORY  WRITE 0 00:1a:55 0 EOF
7: nonsense
`
	for _, c := range []struct {
		what   string
		inode  uint64
		device string
		pid    int
	}{
		{"a lock, and one who waits for it", 1234, "00:1a", 4242},
		{"a lock of another kind", 77, "00:1a", 0},
		{"another device, and the only one", 88, "00:1a", 8},
		{"two with the inode", 99, "00:1b", 10},
		{"two with the inode, on other devices", 99, "00:1c", 0},
		{"a process of another PID namespace", 55, "00:1a", 0},
		{"no lock", 5, "00:1a", 0},
	} {
		if pid := flockOn(locks, c.inode, c.device); pid != c.pid {
			t.Errorf("%s: pid %d, want %d", c.what, pid, c.pid)
		}
	}
}
