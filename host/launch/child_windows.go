// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"os"
	"syscall"

	"golang.org/x/sys/windows"
)

// apart gives a plugin a process group of its own, so that Ctrl-C at the host's console does not reach it.
func apart() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP, HideWindow: true}
}

func executable(string, os.FileInfo) error { return nil }

func unstarted(_ string, err error) error { return err }

// guardedWell has nothing to say: who may change the binary is the administrator's to see to.
func guardedWell(string, os.FileInfo) error { return nil }

// setOOMScore has nothing to do: this system has no score for when memory runs out.
func setOOMScore(int, int) error { return nil }
