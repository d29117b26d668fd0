// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// fileSystems are those that matter, by their magic number (statfs(2)).
var fileSystems = map[int64]string{
	unix.TMPFS_MAGIC:           "tmpfs",
	unix.RAMFS_MAGIC:           "ramfs",
	unix.OVERLAYFS_SUPER_MAGIC: "overlay",
	unix.NFS_SUPER_MAGIC:       "nfs",
	unix.SMB_SUPER_MAGIC:       "smb",
	unix.SMB2_SUPER_MAGIC:      "smb",
	unix.CIFS_SUPER_MAGIC:      "smb",
}

// spaceOf asks the kernel about the file system of a path.
func spaceOf(path string) (space, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return space{}, fmt.Errorf("ask for the file system of %s: %w", path, err)
	}
	blocks := s.Bavail
	if os.Geteuid() == 0 {
		blocks = s.Bfree // root may use what is reserved
	}
	return space{
		kind: fileSystems[int64(s.Type)], bytes: blocks * uint64(s.Bsize), inodes: s.Ffree, uncounts: s.Files == 0,
		readOnly: s.Flags&unix.ST_RDONLY != 0, noExec: s.Flags&unix.ST_NOEXEC != 0,
	}, nil
}

// writable asks the kernel whether this process may make files in a directory. A directory that may
// not be changed at all (chattr +i) is refused to root, too. An ordinary user is not asked about
// another's directory: the host may run as that one.
func writable(dir string) error {
	var s unix.Stat_t
	if me := os.Geteuid(); me != 0 && unix.Stat(dir, &s) == nil && s.Uid != uint32(me) {
		return nil
	}
	return unix.Access(dir, unix.W_OK|unix.X_OK)
}
