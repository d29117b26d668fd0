// SPDX-License-Identifier: Apache-2.0

package packages

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/test/eventually"
)

// boot makes of the folder $1 the root of namespaces of its own, and of the control group $2 the root of
// those that are seen there, and becomes systemd, which then is process 1. Kernel parameters are
// the machine's, but for those of the network, and so may only be read.
const boot = `
echo 0 >"$2/cgroup.procs"
exec unshare --cgroup sh -ec '
mount --bind "$1" "$1"
cd "$1"
mount -t proc proc proc
mount --bind proc/sys proc/sys
mount --bind proc/sys/net proc/sys/net
mount -o remount,bind,ro proc/sys
mount -t sysfs -o ro sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs -o mode=0755 tmpfs run
mount -t tmpfs -o mode=0755 tmpfs dev
mkdir dev/pts dev/shm
for n in null zero full random urandom tty; do
	: >dev/$n
	mount --bind /dev/$n dev/$n
done
mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
: >dev/console
mount --bind /dev/null dev/console
pivot_root . .
umount -l .
exec env -i container=pointsman-test PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C /lib/systemd/systemd systemd.unified_cgroup_hierarchy=1
' sh "$1"
`

// masked are units of Debian's that need what the node has not: a terminal, a network outside, the
// machine's kernel.
var masked = []string{
	"apt-daily.timer", "apt-daily-upgrade.timer", "console-getty.service", "getty@.service", "systemd-journald-audit.socket",
	"systemd-modules-load.service", "systemd-sysctl.service", "dev-hugepages.mount", "sys-kernel-debug.mount", "sys-kernel-tracing.mount",
}

// A machine is a node that systemd runs, as process 1 of namespaces of its own.
type machine struct {
	*node
	log    bytes.Buffer   // of what it was booted by
	groups string         // where the control groups are, mounted by the test
	ends   chan struct{}  // closed when what it was booted by has ended
	outer  *os.Process    // that is process 1's parent
	unit   map[string]int // the main process of each unit, when it was last asked for
}

// newMachine is one that has not been booted.
func newMachine(t *testing.T) *machine {
	t.Helper()
	m := &machine{node: unpacked(t), groups: t.TempDir(), unit: make(map[string]int)}
	if err := syscall.Mount("cgroup2", m.groups, "cgroup2", 0, ""); err != nil {
		t.Skipf("needs a kernel with control groups of version 2: %v", err)
	}
	t.Cleanup(m.end)
	if err := os.WriteFile(m.path("/etc/machine-id"), []byte("0123456789abcdef0123456789abcdef\n"), 0o444); err != nil {
		t.Fatal(err)
	}
	for _, name := range masked {
		if err := os.Symlink("/dev/null", m.path("/etc/systemd/system/"+name)); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// group is the folder of the control group that the machine is in.
func (m *machine) group() string {
	return filepath.Join(m.groups, fmt.Sprintf("pointsman-test-%d", os.Getpid()))
}

// boot starts it, and waits until systemd has started all that is to run.
func (m *machine) boot() {
	m.Helper()
	if err := os.Mkdir(m.group(), 0o755); err != nil {
		m.Fatal(err)
	}
	cmd := exec.Command("unshare", "--pid", "--fork", "--kill-child", "--mount", "--uts", "--ipc", "--propagation", "private",
		"sh", "-ec", boot, "sh", m.root, m.group())
	cmd.Stdout, cmd.Stderr = &m.log, &m.log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started, ended := make(chan error), make(chan struct{})
	m.ends = ended
	go func() { // ends with the machine; the thread that started a process must outlive it
		runtime.LockOSThread()
		defer close(ended)
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		m.Fatal(err)
	}
	m.outer = cmd.Process
	eventually.Succeeds(m, "systemd answers", func() error {
		select {
		case <-ended:
			return eventually.Final(fmt.Errorf("it ended: %s", &m.log))
		default:
		}
		return m.entered()
	})
	state, err := m.try("systemctl", "is-system-running", "--wait")
	if state = strings.TrimSpace(state); state != "running" {
		m.Fatalf("the machine is %s: %v\n%s", state, err, m.in("systemctl", "list-units", "--failed", "--no-legend"))
	}
}

// entered finds process 1, by which programs of the machine are run and its files read from then on.
func (m *machine) entered() error {
	of := fmt.Sprintf("/proc/%d/task/%d/children", m.outer.Pid, m.outer.Pid)
	children, err := os.ReadFile(of)
	if err != nil {
		return err
	}
	first := strings.TrimSpace(string(children))
	if _, err := strconv.Atoi(first); err != nil {
		return fmt.Errorf("process 1 is not there yet: %w", err)
	}
	if _, err := os.Stat("/proc/" + first + "/root/run/systemd/private"); err != nil {
		return err
	}
	m.enter = []string{"nsenter", "--target", first, "--mount", "--uts", "--ipc", "--pid", "--cgroup", "--"}
	m.Client = admin.NewClient("/proc/" + first + "/root/run/pointsman-host/pointsman.sock")
	return nil
}

// try runs a program of the machine's, which may fail.
func (m *machine) try(words ...string) (string, error) {
	words = slices.Concat(m.enter, words)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(m.Context()), eventually.Timeout) // also when the test is over
	defer cancel()
	out, err := exec.CommandContext(ctx, words[0], words[1:]...).CombinedOutput()
	return string(out), err
}

// shutDown has systemd end everything, and takes from the kernel what does not outlive that: rules,
// and what it tracks.
func (m *machine) shutDown() {
	m.Helper()
	m.in("systemctl", "poweroff")
	eventually.True(m, "the machine is off", func() bool {
		select {
		case <-m.ends:
			return true
		default:
			return false
		}
	})
	m.enter = []string{"chroot", m.root}
	m.ungroup()
	m.run("nft", "flush", "ruleset")
	m.run("conntrack", "-F")
}

// ungroup removes the machine's control groups, from those without others up, once their processes
// are gone.
func (m *machine) ungroup() {
	m.Helper()
	err := eventually.Try(eventually.Timeout, func() error {
		var all []string
		_ = filepath.WalkDir(m.group(), func(path string, e fs.DirEntry, err error) error {
			if err == nil && e.IsDir() {
				all = append(all, path)
			}
			return nil
		})
		var errs []error
		for _, path := range slices.Backward(all) {
			errs = append(errs, syscall.Rmdir(path))
		}
		return errors.Join(errs...)
	})
	if err != nil {
		m.Errorf("the machine's control groups: %v", err)
	}
}

// end ends what still runs, at once.
func (m *machine) end() {
	if m.outer != nil {
		if m.Failed() {
			journal, _ := m.try("journalctl", "--no-pager", "--output=short-monotonic", "--lines=300")
			m.Logf("the journal:\n%s", journal)
		}
		_ = m.outer.Kill()
		<-m.ends
		m.ungroup()
	}
	if err := syscall.Unmount(m.groups, syscall.MNT_DETACH); err != nil {
		m.Error(err)
	}
}
