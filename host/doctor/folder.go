// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/pointsman/pointsman/host/admin"
)

// A Folder is one in which the host writes what the next host needs.
type Folder struct {
	Check string // the setting that names it
	Path  string
	Boots bool // what is in it must be there after the node has started again
	InPod bool // this process is in a pod, whose own layer ends with it

	Guarded func(dir string) error // whether other users could change what is in it
}

// What a folder should have room for: some files of at most 1 MiB each are replaced in it.
const (
	leastBytes  = 16 << 20
	leastInodes = 256
	noBytes     = 64 << 10 // less is as good as none
)

// A space is what the file system of a folder has left.
type space struct {
	kind     string // of the file system: "tmpfs", "nfs"; empty: an ordinary one
	bytes    uint64
	inodes   uint64
	uncounts bool // it has inodes as long as it has space
	readOnly bool
	noExec   bool
}

// Examine finds what keeps the host from writing in the folder, and from finding it again. It writes nothing.
func (f Folder) Examine() []admin.Finding {
	info, err := os.Stat(f.Path)
	missing := errors.Is(err, fs.ErrNotExist)
	switch {
	case missing:
		return f.unmade()
	case err != nil:
		return f.bad(admin.Fail, err.Error(), "")
	case !info.IsDir():
		return f.bad(admin.Fail, f.Path+" is no directory", fmt.Sprintf("move it away, or set %s to another path", f.Check))
	}
	if err := f.Guarded(f.Path); err != nil {
		return f.bad(admin.Fail, err.Error(), "")
	}
	left, err := spaceOf(f.Path)
	if err != nil {
		return unknown(f.Check, err)
	}
	if found := f.fits(left); len(found) > 0 {
		return found
	}
	if err := writable(f.Path); err != nil {
		return f.bad(admin.Fail, fmt.Sprintf("nothing can be written to %s: %v", f.Path, err), "lsattr -d, and the rights of the user that runs the host")
	}
	return ok(f.Check, "%s is guarded, and has %d MiB left", f.Path, left.bytes>>20)
}

// unmade says whether a folder that is not there yet can be made: the nearest one above it that is
// there must let it.
func (f Folder) unmade() []admin.Finding {
	above := filepath.Dir(filepath.Clean(f.Path))
	for {
		info, err := os.Stat(above)
		switch {
		case errors.Is(err, fs.ErrNotExist) && above != filepath.Dir(above):
			above = filepath.Dir(above)
			continue
		case err != nil:
			return f.bad(admin.Fail, err.Error(), "")
		case !info.IsDir():
			return f.bad(admin.Fail, fmt.Sprintf("%s cannot be made: %s is no directory", f.Path, above), "move it away, or set "+f.Check+" to another path")
		}
		break
	}
	if err := writable(above); err != nil {
		return f.bad(admin.Fail, fmt.Sprintf("%s is not there, and nothing can be written to %s: %v", f.Path, above, err), "make it for the user that runs the host, or set "+f.Check+" to another path")
	}
	return ok(f.Check, "%s is not there yet", f.Path)
}

// fits finds what is wrong with a file system for what the host writes. Pure.
func (f Folder) fits(left space) (found []admin.Finding) {
	add := func(result admin.Result, try, format string, args ...any) {
		found = append(found, f.bad(result, fmt.Sprintf(format, args...), try)...)
	}
	if left.readOnly {
		add(admin.Fail, "have it mounted with rw", "%s is on a file system that is mounted read-only, so that nothing can be noted for the next host", f.Path)
	}
	const room = "df and df -i show what is used; make room"
	switch {
	case left.bytes < noBytes:
		add(admin.Fail, room, "%s is on a file system without space left, so that nothing can be noted for the next host", f.Path)
	case left.bytes < leastBytes:
		add(admin.Warn, room, "the file system of %s has only %d KiB left", f.Path, left.bytes>>10)
	}
	switch {
	case left.uncounts:
	case left.inodes == 0:
		add(admin.Fail, room, "%s is on a file system without inodes left: no file can be made there, whatever its space", f.Path)
	case left.inodes < leastInodes:
		add(admin.Warn, room, "the file system of %s has only %d inodes left", f.Path, left.inodes)
	}
	switch {
	case f.Boots && (left.kind == "tmpfs" || left.kind == "ramfs"):
		add(admin.Warn, "set "+f.Check+" to a path on a disk", "%s is on %s, which a reboot empties", f.Path, left.kind)
	case f.InPod && left.kind == "overlay":
		add(admin.Warn, "mount a hostPath there, as configs/kubernetes/daemonset.yaml does", "%s is of the container alone, and ends with it", f.Path)
	case left.kind == "nfs" || left.kind == "smb":
		add(admin.Warn, "set "+f.Check+" to a path on a file system of this node", "%s is on %s, which may stop to answer, and the host with it", f.Path, left.kind)
	}
	return found
}

func (f Folder) bad(result admin.Result, reason, try string) []admin.Finding {
	return []admin.Finding{{Check: f.Check, Result: result, Why: reason, Try: try}}
}

// Executable finds a file system that lets no program in it be run. It has a finding only then.
func Executable(check, program string) []admin.Finding {
	left, err := spaceOf(program)
	if err != nil || !left.noExec {
		return nil // what else is wrong with it shows when it is run
	}
	return []admin.Finding{{Check: check, Result: admin.Fail, Why: program + " is on a file system that is mounted with noexec, so that it cannot be run",
		Try: "have it mounted with exec, or install plugins elsewhere and name that in pluginDirs"}}
}
