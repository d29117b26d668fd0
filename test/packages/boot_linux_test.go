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

// boot makes the folder $1 the root of new namespaces and the control group $2 the root of those visible there, and
// becomes systemd as process 1. The kernel parameters are the machine's, except those of the network, and so are
// read-only.
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

// masked are units of Debian's that need what the node lacks: a terminal, a network outside, the machine's kernel.
var masked = []string{
	"apt-daily.timer", "apt-daily-upgrade.timer", "console-getty.service", "getty@.service", "systemd-journald-audit.socket",
	"systemd-modules-load.service", "systemd-sysctl.service", "dev-hugepages.mount", "sys-kernel-debug.mount", "sys-kernel-tracing.mount",
}

// A machine is a node run by systemd, as process 1 of namespaces of its own.
type machine struct {
	*node
	log    bytes.Buffer   // of the command that booted it
	groups string         // where the test mounts the control groups
	ends   chan struct{}  // closed when that command has ended
	outer  *os.Process    // the parent of process 1
	unit   map[string]int // the main process of each unit, as last seen
}

// newMachine returns a machine that has not been booted.
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

// group returns the folder of the machine's control group.
func (m *machine) group() string {
	return filepath.Join(m.groups, fmt.Sprintf("pointsman-test-%d", os.Getpid()))
}

// boot starts the machine, and waits until systemd has started everything.
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
		m.Fatalf("the machine is %s: %v\n%s", state, err, m.runInside("systemctl", "list-units", "--failed", "--no-legend"))
	}
}

// entered finds process 1, through which the test then runs programs and reads files.
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

// try runs a program on the machine, which may fail.
func (m *machine) try(words ...string) (string, error) {
	words = slices.Concat(m.enter, words)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(m.Context()), eventually.Timeout) // also after the test
	defer cancel()
	out, err := exec.CommandContext(ctx, words[0], words[1:]...).CombinedOutput()
	return string(out), err
}

// shutDown lets systemd end everything, and removes from the kernel what a shutdown removes: rules, and tracked
// connections.
func (m *machine) shutDown() {
	m.Helper()
	m.runInside("systemctl", "poweroff")
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

// ungroup removes the machine's control groups, from the innermost up, once their processes have ended.
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

// end kills what still runs.
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
