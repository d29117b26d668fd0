// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"os"
	"syscall"

	"golang.org/x/sys/windows"
)

// processAttr gives the plugin its own process group, so that Ctrl-C at the host's console does not reach it.
func processAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP, HideWindow: true}
}

func executable(string, os.FileInfo) error { return nil }

func explainStart(err error) error { return err }

// checkWriters checks nothing: on Windows the administrator is responsible for the permissions of the binary.
func checkWriters(string, os.FileInfo) error { return nil }

// setOOMScore does nothing: this system has no OOM score.
func setOOMScore(int, int) error { return nil }
