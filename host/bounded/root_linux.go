// SPDX-License-Identifier: Apache-2.0

package bounded

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// ReadFileIn is ReadFile of a file below root, such as the root of a process in a container:
// absolute names and links begin at root, and none leads out of it.
func ReadFileIn(root, name string, limit int64) ([]byte, error) {
	dir, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", root, err)
	}
	defer unix.Close(dir)
	how := &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_CLOEXEC | nonBlocking, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	fd, err := unix.Openat2(dir, name, how)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), name)
	defer file.Close()
	info, err := file.Stat()
	if err == nil {
		err = ordinary(info, limit)
	}
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(file, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = tooLarge(limit)
	}
	return data, err
}
