// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxNews is how many names are remembered until they are taken.
const maxNews = 1 << 16

// A notifier reports changes in one folder, by inotify. A nil one reports none.
type notifier struct {
	file *os.File
	conn syscall.RawConn
	some chan struct{} // holds one token while there may be news

	mu   sync.Mutex // guards what follows, and reading
	dir  string
	wd   int // of dir; -1: none
	next news
	buf  []byte
}

// newNotifier returns nil where inotify is not to be had: its instances are limited
// for each user.
func newNotifier() *notifier {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil
	}
	n := &notifier{file: os.NewFile(uintptr(fd), "inotify"), some: make(chan struct{}, 1), wd: -1, buf: make([]byte, 64<<10)}
	if n.conn, err = n.file.SyscallConn(); err != nil {
		n.file.Close()
		return nil
	}
	go n.run() // until close
	return n
}

func (n *notifier) close() {
	if n != nil {
		n.file.Close()
	}
}

// news holds a token when take may have something.
func (n *notifier) news() <-chan struct{} {
	if n == nil {
		return nil
	}
	return n.some
}

// run reads whenever there is something, until the file is closed.
func (n *notifier) run() {
	for {
		err := n.conn.Read(func(fd uintptr) bool { return n.drain(int(fd)) })
		if err != nil {
			return
		}
		select {
		case n.some <- struct{}{}:
		default:
		}
	}
}

// take returns what has changed until now, and forgets it.
func (n *notifier) take() news {
	if n == nil {
		return news{}
	}
	_ = n.conn.Control(func(fd uintptr) { n.drain(int(fd)) })
	n.mu.Lock()
	defer n.mu.Unlock()
	taken := n.next
	n.next = news{}
	return taken
}

// drain reads all that is there, and reports whether that was something.
func (n *notifier) drain(fd int) (some bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for {
		size, err := unix.Read(fd, n.buf)
		if err != nil || size <= 0 {
			return some
		}
		some = true
		n.parse(n.buf[:size])
	}
}

func (n *notifier) parse(data []byte) {
	for len(data) >= unix.SizeofInotifyEvent {
		e := (*unix.InotifyEvent)(unsafe.Pointer(&data[0]))
		end := unix.SizeofInotifyEvent + int(e.Len)
		name, _, _ := bytes.Cut(data[unix.SizeofInotifyEvent:end], []byte{0})
		n.note(e.Mask, int(e.Wd), string(name))
		data = data[end:]
	}
}

// watched are the events that matter.
const watched = unix.IN_CREATE | unix.IN_MODIFY | unix.IN_CLOSE_WRITE | unix.IN_MOVED_TO | unix.IN_MOVED_FROM |
	unix.IN_DELETE | unix.IN_ATTRIB | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_EXCL_UNLINK | unix.IN_ONLYDIR

func (n *notifier) note(mask uint32, wd int, name string) {
	switch {
	case mask&unix.IN_Q_OVERFLOW != 0:
		n.next.all = true
	case wd != n.wd: // of a folder that was watched before
	case mask&(unix.IN_IGNORED|unix.IN_UNMOUNT|unix.IN_DELETE_SELF|unix.IN_MOVE_SELF) != 0:
		n.next.all = true
		if mask&unix.IN_IGNORED != 0 {
			n.wd = -1
		}
	case strings.HasPrefix(name, ".."): // as the volume of a ConfigMap has them
		n.next.swapped = n.next.swapped || mask&unix.IN_MOVED_TO != 0
	case name == "" || strings.HasPrefix(name, "."):
	case len(n.next.names) >= maxNews:
		n.next.all = true
	default:
		if n.next.names == nil {
			n.next.names = make(map[string]event)
		}
		full, now := filepath.Join(n.dir, name), eventOf(mask)
		if now != touched || n.next.names[full] != written {
			n.next.names[full] = now
		}
	}
}

func eventOf(mask uint32) event {
	switch {
	case mask&(unix.IN_DELETE|unix.IN_MOVED_FROM) != 0:
		return gone
	case mask&unix.IN_MOVED_TO != 0:
		return moved
	case mask&unix.IN_CLOSE_WRITE != 0:
		return closed
	case mask&unix.IN_ATTRIB != 0:
		return touched
	}
	return written
}

// watch reports changes in dir from now on, and those elsewhere no more. It returns
// whether that can be relied on.
func (n *notifier) watch(dir string) bool {
	if n == nil || !clockIsOurs(dir) {
		return false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	ok := false
	_ = n.conn.Control(func(fd uintptr) {
		wd, err := unix.InotifyAddWatch(int(fd), dir, watched)
		ok = err == nil
		if n.wd != -1 && n.wd != wd {
			_, _ = unix.InotifyRmWatch(int(fd), uint32(n.wd))
		}
		if n.wd = -1; ok {
			n.dir, n.wd = dir, wd
		}
	})
	return ok
}

// disks are the file systems of this machine alone: the kernel sees every change of
// them, and dates it by its own clock.
var disks = []int64{
	unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.TMPFS_MAGIC, unix.RAMFS_MAGIC,
	unix.OVERLAYFS_SUPER_MAGIC, unix.F2FS_SUPER_MAGIC, unix.REISERFS_SUPER_MAGIC, unix.SQUASHFS_MAGIC,
	unix.EROFS_SUPER_MAGIC_V1, unix.MSDOS_SUPER_MAGIC, unix.EXFAT_SUPER_MAGIC, zfsMagic, bcachefsMagic,
}

const (
	zfsMagic      = 0x2fc12fc1
	bcachefsMagic = 0xca451a4e
)

// clockIsOurs reports whether name lies on a file system of this machine alone.
func clockIsOurs(name string) bool {
	var fs unix.Statfs_t
	return unix.Statfs(name, &fs) == nil && slices.Contains(disks, int64(fs.Type))
}

// changedAt returns when a file, or what is known of it, changed last: no program can set that.
func changedAt(info os.FileInfo) time.Time {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return time.Unix(s.Ctim.Unix())
	}
	return time.Time{}
}

// unwatched reports whether the file may change without the folder's watch reporting it.
func (seen found) unwatched(in folder) bool {
	if seen.link || seen.state.info == nil || in.info == nil {
		return true
	}
	file, ok1 := seen.state.info.Sys().(*syscall.Stat_t)
	dir, ok2 := in.info.Sys().(*syscall.Stat_t)
	return !ok1 || !ok2 || file.Dev != dir.Dev
}
