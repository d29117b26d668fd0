// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/pointsman/pointsman/test/eventually"
)

// inNamespace runs f in a network namespace of its own, which ends with keep's closing.
func inNamespace(t *testing.T, f func()) (keep netns.NsHandle) {
	t.Helper()
	made := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		before, err := netns.Get()
		if err == nil {
			keep, err = netns.New()
		}
		if err == nil {
			f()
			err = netns.Set(before)
		}
		// The thread goes back: if it is the first one of the process, Go cannot end it, and
		// the namespace would live as long as the process.
		if err == nil {
			runtime.UnlockOSThread()
			err = before.Close()
		}
		made <- err
	}()
	if err := <-made; err != nil {
		t.Skipf("needs root: to make a network namespace: %v", err)
	}
	return keep
}

// aloneEnv says that this process is alone in its PID namespace.
const aloneEnv = "LEDGER_TEST_ALONE"

// alone runs the test in a PID namespace of its own, where it may look at every process,
// and those of other tests do not end while they are looked at.
func alone(t *testing.T) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), aloneEnv+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// ofNamespaces are the namespaces of which dir has files.
func ofNamespaces(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}

// TestSweep removes what is left of a namespace that is gone, and nothing of one that lives,
// in whichever way it is kept alive.
func TestSweep(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: to make network namespaces")
	}
	if os.Getenv(aloneEnv) == "" {
		alone(t)
		return
	}
	if err := errors.Join(unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""), unix.Mount("proc", "/proc", "proc", 0, "")); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var ours, theirs *Ledger
	begin := func(l **Ledger) func() {
		return func() {
			var err error
			*l, err = Open(dir)
			if err == nil {
				var lock *Lock
				if lock, err = (*l).TryLock("iptables"); err == nil {
					err = errors.Join((*l).edit(func(settings) error { return nil }), lock.Unlock())
				}
			}
			if err == nil {
				var share *Share
				if share, err = (*l).Share(context.Background(), "KUBE-MARK-MASQ"); err == nil {
					share.Add("iptables")
					err = errors.Join(share.Save(), share.Close())
				}
			}
			if err != nil {
				t.Error(err)
			}
		}
	}
	kept := inNamespace(t, begin(&ours))
	defer kept.Close()
	gone := inNamespace(t, begin(&theirs))
	here, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	sweep := func() {
		// A busy machine may need more than one look: a process may end while it is looked at.
		for range 20 {
			here.sweep(0, time.Minute)
		}
	}

	here.sweep(time.Hour, time.Minute)
	sweep()
	if left := ofNamespaces(t, dir); !strings.Contains(left, ours.namespace) || !strings.Contains(left, theirs.namespace) {
		t.Fatalf("of %s and %s, which live, there is left: %s", ours.namespace, theirs.namespace, left)
	}

	gone.Close()
	lock, err := theirs.TryLock("iptables") // as a tool that was handed it holds it
	if err != nil {
		t.Fatal(err)
	}
	sweep()
	if left := ofNamespaces(t, dir); !strings.Contains(left, theirs.namespace) {
		t.Errorf("a lock that is held was removed: %s", left)
	}
	if err := lock.Unlock(); err != nil {
		t.Fatal(err)
	}
	if here.sweep(time.Hour, time.Minute); !strings.Contains(ofNamespaces(t, dir), theirs.namespace) {
		t.Error("what was written just now was removed")
	}
	// The kernel takes a while to see that the namespace is gone.
	eventually.Succeeds(t, "what belongs to "+theirs.namespace+", which is gone, is removed", func() error {
		sweep()
		left := ofNamespaces(t, dir)
		if !strings.Contains(left, ours.namespace) {
			return eventually.Final(fmt.Errorf("%s lives, and there is left: %s", ours.namespace, left))
		}
		if strings.Contains(left, theirs.namespace) {
			return fmt.Errorf("there is left: %s", left)
		}
		return nil
	})
}

// TestLocksHoldWhileTheyAreSwept: one at a time has the lock, though its file is removed
// again and again by what takes its namespace for gone.
func TestLocksHoldWhileTheyAreSwept(t *testing.T) {
	l, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	name := l.file(".lock")
	var inside atomic.Int32
	var workers, sweeper sync.WaitGroup
	stop := make(chan struct{})
	sweeper.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				l.remove([]string{name})
			}
		}
	})
	for range 4 {
		workers.Go(func() {
			for range 300 {
				f, err := lockFile(name)
				if err != nil {
					t.Error(err)
					return
				}
				if n := inside.Add(1); n != 1 {
					t.Errorf("%d have the lock", n)
				}
				runtime.Gosched()
				inside.Add(-1)
				f.Close()
			}
		})
	}
	workers.Wait()
	close(stop)
	sweeper.Wait()
}
