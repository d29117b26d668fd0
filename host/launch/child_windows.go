// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"os"
	"syscall"

	"golang.org/x/sys/windows"
)

// apart gives the plugin its own process group, so that Ctrl-C at the host's console does not
// reach it.
func apart() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP, HideWindow: true}
}

func executable(string, os.FileInfo) error { return nil }

func unstarted(err error) error { return err }

// guardedWell checks nothing: on Windows the administrator is responsible for the permissions
// of the binary.
func guardedWell(string, os.FileInfo) error { return nil }

// setOOMScore does nothing: this system has no OOM score.
func setOOMScore(int, int) error { return nil }
