// SPDX-License-Identifier: Apache-2.0

//go:build unix

package wire

import (
	"fmt"
	"os"
	"syscall"
)

// owned reports why dir is not this user's or root's, if so: its owner may change what is
// in it.
func owned(dir string, info os.FileInfo) error {
	s, ok := info.Sys().(*syscall.Stat_t)
	if ok && s.Uid != 0 && s.Uid != uint32(os.Geteuid()) {
		return fmt.Errorf("directory %s belongs to user %d, who could put another socket there; use one of user %d or root", dir, s.Uid, os.Geteuid())
	}
	return nil
}
